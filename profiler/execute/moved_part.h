// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

#include "profiler/execute/adjacent.h"

namespace tidemark {

/// Numbers of a read that a write is to have as well.
struct MovedPart {
  kernels::ConstTensor from;
  std::size_t read = 0, write = 0;  ///< operands
  std::int64_t offset = 0;          ///< in what is written, in elements

  bool Continues(const MovedPart& previous) const {
    return read == previous.read && write == previous.write &&
           offset == previous.offset + previous.from.type.elements && AreAdjacent(previous.from, from);
  }
  void Extend(const MovedPart& next) { from.type.elements += next.from.type.elements; }
};

}  // namespace tidemark
