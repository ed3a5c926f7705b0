// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "kernels/tensor.h"

namespace tidemark::kernels {

/// Normally distributed numbers, each of which depends on the key and its place alone: whoever holds a part of a tensor
/// draws the numbers of the whole. The parts are rows of `columns` elements, `stride` places apart in the whole, where
/// the first row begins at place `first`; the tensor begins `skipped` elements behind that.
struct Normal {
  std::uint64_t key = 0;
  double deviation = 1;
  std::int64_t first = 0, columns = 1, stride = 1, skipped = 0;

  /// Of the tensor's element `i`.
  constexpr std::int64_t PlaceOf(std::int64_t i) const {
    return first + (skipped + i) / columns * stride + (skipped + i) % columns;
  }
};

/// Box and Muller's transform of two uniform numbers of 53 bits ("A note on the generation of random normal deviates",
/// 1958), in fp64, rounded to the tensor's dtype; to two bytes by way of fp32.
void DrawNormal(const Normal& op, const Tensor& to);

}  // namespace tidemark::kernels
