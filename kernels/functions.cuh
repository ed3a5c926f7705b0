// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>
#include <type_traits>

#include "kernels/ptx.cuh"
#include "kernels/words.cuh"

namespace tidemark::kernels::cuda {

// Exponentials, logarithms and roots are std:: in both worlds: CUDA's lose at most 2 units in the last place.

/// Of a number from 1 on. In fp32 a GPU loses a unit in the last place by it, and is spared the branch of an exact
/// division.
template <class C>
__host__ __device__ inline C Inverse(C x) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<C, float>) {
    return ptx::Reciprocal(x);
  }
#endif
  return C(1) / x;
}

template <class C>
__host__ __device__ inline C Sigmoid(C x) {
  return Inverse(C(1) + std::exp(-x));
}

}  // namespace tidemark::kernels::cuda
