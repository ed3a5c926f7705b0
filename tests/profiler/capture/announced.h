// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace tidemark {

/// One thing that a process has told a tool about itself.
struct Announced {
  enum class Kind : std::uint8_t { push, pop, heap, heap_gone, region, region_gone, region_name };
  Kind kind = Kind::push;
  std::string name{};           ///< of push and region_name
  std::string category{};       ///< of push
  std::int64_t payload = -1;    ///< of push; -1: none
  std::uint64_t address = 0;    ///< of heaps and regions
  std::int64_t bytes = 0;       ///< of heap and region
  std::uint64_t heap_base = 0;  ///< of region: where its heap begins; 0: not told
};

}  // namespace tidemark
