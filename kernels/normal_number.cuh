// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <numbers>

#include "kernels/normal.h"
#include "kernels/random_bits.h"
#include "kernels/words.cuh"

namespace tidemark::kernels {

/// The tensor's element `i`, for host and device.
__host__ __device__ inline double NormalNumber(const Normal& op, std::int64_t i) {
  constexpr double kUnit = 0x1p-53;
  const auto counter = 2 * static_cast<std::uint64_t>(op.PlaceOf(i));
  const std::uint64_t first = RandomBits(op.key ^ RandomBits(counter)),
                      second = RandomBits(op.key ^ RandomBits(counter + 1));
  const double radius = std::sqrt(-2 * std::log((static_cast<double>(first >> 11) + 1) * kUnit));
  return op.deviation * (radius * std::cos(2 * std::numbers::pi * static_cast<double>(second >> 11) * kUnit));
}

}  // namespace tidemark::kernels
