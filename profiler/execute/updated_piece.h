// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "profiler/execute/adjacent.h"

namespace tidemark {

/// One update of one parameter, in pieces: what it is made of, what is updated, and its moments. All of as many
/// numbers.
struct UpdatedPiece {
  kernels::ConstTensor
      source;  ///< the gradient; where that is in the moments already, AdamW's denominator or SGD's momentum
  kernels::Tensor updated;
  std::vector<kernels::Tensor> copies;  ///< weights that are cast from it
  std::vector<kernels::Tensor> moments;
  std::optional<kernels::ConstTensor> weights;  ///< `updated` is to be the change of these, which are left as they are
  std::vector<const void*> memory;  ///< where what these are parts of begins: the source's, then the others'

  bool Continues(const UpdatedPiece& previous) const {
    const auto are_adjacent = [](const auto& first, const auto& second) {
      return std::equal(first.begin(), first.end(), second.begin(), second.end(), AreAdjacent<kernels::Tensor>);
    };
    return memory == previous.memory && AreAdjacent(previous.source, source) &&
           AreAdjacent(previous.updated, updated) && are_adjacent(previous.copies, copies) &&
           are_adjacent(previous.moments, moments) && !weights && !previous.weights;
  }
  void Extend(const UpdatedPiece& next) {
    const std::int64_t more = next.source.type.elements;
    source.type.elements += more;
    updated.type.elements += more;
    for (kernels::Tensor& copy : copies) {
      copy.type.elements += more;
    }
    for (kernels::Tensor& moment : moments) {
      moment.type.elements += more;
    }
  }
};

}  // namespace tidemark
