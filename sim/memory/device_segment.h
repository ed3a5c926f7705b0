// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/quantity.h"

namespace tidemark {

/// Memory of a device that an allocator gives back as a whole, or of a range of addresses, page by page; and what lies
/// in it.
struct DeviceSegment {
  struct Part {
    std::uint64_t address = 0;
    Bytes bytes;
    std::optional<std::uint32_t> handle;  ///< of the allocation there; nothing: it is free
  };
  std::vector<Part> parts;  ///< by address; of a range, what is mapped

  Bytes bytes() const;
  Bytes free() const;
};

}  // namespace tidemark
