// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/category.h"
#include "base/quantity.h"
#include "traces/trace.h"

namespace tidemark {

/// The first instant at which most is allocated, for formats that mark it.
struct MemoryPeak {
  /// Members of a family of tensors that are alive then.
  struct Family {
    TensorNameId tensor;
    std::int64_t count = 0;
    Bytes bytes;  ///< of all of them
  };

  std::size_t event = 0;  ///< the allocation that reaches it, an index into Trace::memory
  Bytes allocated;
  CategoryBytes by_category;
  std::vector<Family> largest;  ///< largest first, at most `families`
};

/// The trace is sound (Verify) and has memory events.
MemoryPeak FindMemoryPeak(const Trace& trace, std::size_t families);

}  // namespace tidemark
