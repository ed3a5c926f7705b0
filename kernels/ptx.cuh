// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/words.cuh"

// What a GPU is told in words that C++ has not: launches, and instructions of PTX ("Parallel Thread Execution ISA").
// A test says the same to a GPU that it emulates (tests/kernels/emulated/gpu.h), whose words these are then.

#if defined(__CUDACC__) && !defined(TIDEMARK_EMULATED_GPU)

/// Blocks of so many threads with so many bytes of shared memory, on a CUDA stream.
#define TIDEMARK_LAUNCH(kernel, blocks, threads, shared, stream, ...) \
  kernel<<<blocks, threads, shared, stream>>>(__VA_ARGS__)
#define TIDEMARK_SHARED_MEMORY(name) extern __shared__ __align__(128) unsigned char name[]

namespace tidemark::kernels::cuda::ptx {

/// cp.async: kSize bytes, 16 or 4, into shared memory, under way until WaitForCopies; `bytes` of them from there, 0 or
/// all, and zeros.
template <int kSize>
__device__ inline void CopyAsync(void* to, const void* from, int bytes) {
  const auto at = static_cast<unsigned>(__cvta_generic_to_shared(to));
  const auto there = __cvta_generic_to_global(from);
  if constexpr (kSize == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" : : "r"(at), "l"(there), "r"(bytes) : "memory");
  } else {
    static_assert(kSize == 4);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" : : "r"(at), "l"(there), "r"(bytes) : "memory");
  }
}
/// Of this thread's.
__device__ inline void WaitForCopies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// ldmatrix: four matrices of 8 x 8 elements of two bytes. `from`: of lane i, the row i % 8 of matrix i / 8. Of each a
/// lane 4 g + t gets two elements side by side, of row g and columns 2 t and 2 t + 1.
__device__ inline void LoadMatrices(unsigned (&to)[4], const void* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from)))
               : "memory");
}
/// The same, turned: of column g and rows 2 t and 2 t + 1.
__device__ inline void LoadTurnedMatrices(unsigned (&to)[4], const void* from) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from)))
               : "memory");
}

/// mma.m16n8k16: a product of 16 x 16 by 16 x 8, of bf16 or fp16. Which elements are a thread's: "Matrix fragments for
/// mma.m16n8k16".
__device__ inline void AddProductOfBf16(float (&sums)[4], const unsigned (&left)[4], const unsigned* right) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}
__device__ inline void AddProductOfFp16(float (&sums)[4], const unsigned (&left)[4], const unsigned* right) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

/// st.global.v4: 16 bytes at once, which a compiler that finds out how they came about may make several of.
__device__ inline void StoreWords(void* to, const unsigned (&words)[4]) {
  asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};"
               :
               : "l"(__cvta_generic_to_global(to)), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3])
               : "memory");
}

/// max: NaN where there is one.
__device__ inline float LargerOrNaN(float a, float b) {
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(a) : "f"(a), "f"(b));
  return a;
}
/// rcp: 1 / x within a unit in the last place, 0 below 2^-126.
__device__ inline float Reciprocal(float x) {
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(x));
  return x;
}
/// ex2: 2^x within 2 units in the last place, 0 below 2^-126.
__device__ inline float PowerOf2(float x) {
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(x) : "f"(x));
  return x;
}

}  // namespace tidemark::kernels::cuda::ptx

#endif
