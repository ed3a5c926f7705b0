// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/words.cuh"

namespace tidemark::kernels::cuda {

/// By which a pair of the `turned` elements of a head is turned at a place (kernels/rope.h).
__host__ __device__ inline double RotaryAngle(double theta, std::int64_t turned, std::int64_t place,
                                              std::int64_t pair) {
  return static_cast<double>(place) * std::pow(theta, -2 * static_cast<double>(pair) / static_cast<double>(turned));
}

}  // namespace tidemark::kernels::cuda
