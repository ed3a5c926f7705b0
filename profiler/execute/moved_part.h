// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/tensor.h"
#include "kernels/together.h"
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

/// Parts that become one kernel, as the systems' own concatenations and copies of many tensors are; one after the other
/// where two of them write the same numbers.
class MovedParts {
 public:
  explicit MovedParts(const std::vector<MovedPart>& parts) : parts_(Joined(parts)), are_apart_(AreApart(parts_)) {}

  /// move(queue, part) of all.
  template <class Move>
  void Each(const kernels::Queue& queue, const Move& move) const {
    if (are_apart_) {
      kernels::EachTogether(queue, parts_, move);
      return;
    }
    for (const MovedPart& part : parts_) {
      move(queue, part);
    }
  }

 private:
  /// What is read is in buffers that are not written (StateBinder::IsWritten), and these do not share memory.
  static bool AreApart(std::vector<MovedPart> parts) {
    std::sort(parts.begin(), parts.end(), [](const MovedPart& one, const MovedPart& other) {
      return std::pair(one.write, one.offset) < std::pair(other.write, other.offset);
    });
    return std::adjacent_find(parts.begin(), parts.end(), [](const MovedPart& one, const MovedPart& other) {
             return one.write == other.write && one.offset + one.from.type.elements > other.offset;
           }) == parts.end();
  }

  std::vector<MovedPart> parts_;
  bool are_apart_;
};

}  // namespace tidemark
