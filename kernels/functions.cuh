// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cmath>

#include "kernels/words.cuh"

namespace tidemark::kernels::cuda {

// Exponentials, logarithms and roots are std:: in both worlds: CUDA's lose at most 2 units in the last place.

template <class C>
__host__ __device__ inline C Sigmoid(C x) {
  return C(1) / (C(1) + std::exp(-x));
}

}  // namespace tidemark::kernels::cuda
