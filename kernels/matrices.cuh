// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/ptx.cuh"
#include "kernels/tile.cuh"

namespace tidemark::kernels::cuda {

// What a warp does on tensor cores, of elements T of two bytes.

#ifdef __CUDACC__
/// The product of T's (ptx.cuh).
template <class T>
__device__ inline void AddProduct(float (&sums)[4], const unsigned (&left)[4], const unsigned* right) {
  if constexpr (std::is_same_v<T, Bf16>) {
    ptx::AddProductOfBf16(sums, left, right);
  } else {
    ptx::AddProductOfFp16(sums, left, right);
  }
}
#endif

}  // namespace tidemark::kernels::cuda
