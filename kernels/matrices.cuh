// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/tile.cuh"

namespace tidemark::kernels::cuda {

// What a warp does on tensor cores, of elements T of two bytes. All of its threads take part in each.

#ifdef __CUDACC__
/// Matrices of 8 x 8. `from`: of lane i, the row i % 8 of matrix i / 8. Of each a lane 4 g + t gets two elements side
/// by side, of row g and columns 2 t and 2 t + 1; turned, of column g and rows 2 t and 2 t + 1. PTX ISA, ldmatrix.
template <class T>
__device__ inline void LoadMatrices(unsigned (&to)[4], const T* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from)))
               : "memory");
}
template <class T>
__device__ inline void LoadTurnedMatrices(unsigned (&to)[4], const T* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from)))
               : "memory");
}

template <class T>
__device__ inline unsigned RoundedTwo(float first, float second) {
  unsigned bits = 0;
  if constexpr (std::is_same_v<T, Bf16>) {
    const __nv_bfloat162 two = __floats2bfloat162_rn(first, second);
    std::memcpy(&bits, &two, sizeof(bits));
  } else {
    const __half2 two = __floats2half2_rn(first, second);
    std::memcpy(&bits, &two, sizeof(bits));
  }
  return bits;
}

/// mma.m16n8k16: a product of 16 x 16 by 16 x 8. Which elements are a thread's: PTX ISA, "Matrix fragments for
/// mma.m16n8k16".
template <class T>
__device__ inline void AddProduct(float (&sums)[4], const unsigned (&left)[4], const unsigned* right) {
  if constexpr (std::is_same_v<T, Bf16>) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
  }
}
#endif

}  // namespace tidemark::kernels::cuda
