// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/ptx.cuh"
#include "kernels/words.cuh"

namespace tidemark::kernels::cuda {

// How the threads of a block make one value of theirs, in a fixed order: those of a warp fold in halves, then the
// warps.

/// The largest block's.
inline constexpr int kWarp = 32, kWarps = 8, kThreads = kWarp * kWarps;

#ifdef __CUDA_ARCH__
/// Of a block of so many threads, a power of 2 of warps, what each has: the same on all.
template <class C, class Two>
__device__ inline C JoinThreads(C value, int threads, Two join) {
  const int rank = static_cast<int>(threadIdx.x), warps = threads / kWarp;
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    value = join(value, __shfl_xor_sync(0xFFFFFFFFU, value, offset));
  }
  if (warps == 1) {
    return value;
  }
  __shared__ C of_warps[kWarps];
  __syncthreads();  // the last call's have been read
  if (rank % kWarp == 0) {
    of_warps[rank / kWarp] = value;
  }
  __syncthreads();
  value = of_warps[rank % warps];
  for (int offset = warps / 2; offset > 0; offset /= 2) {
    value = join(value, __shfl_xor_sync(0xFFFFFFFFU, value, offset));
  }
  return value;
}
#else
/// The same of the threads' values.
template <class C, class Two>
inline C JoinValues(C* values, int threads, Two join) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2) {
    for (int i = 0; i < threads; ++i) {
      values[i] = i % kWarp < offset ? join(values[i], values[i + offset]) : values[i];
    }
  }
  for (int offset = threads / 2; offset >= kWarp; offset /= 2) {
    for (int i = 0; i < offset; i += kWarp) {
      values[i] = join(values[i], values[i + offset]);
    }
  }
  return values[0];
}
#endif

}  // namespace tidemark::kernels::cuda
