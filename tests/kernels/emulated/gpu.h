// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <Eigen/Core>
#include <array>
#include <barrier>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

// A GPU for kernels that are compiled as C++, with what only a GPU's compiler calls: this comes before everything else
// (-include). A block's threads take turns on the calling thread, each until it waits for others, in one order in one
// launch and in the reverse in the next: what a missing barrier leaves to chance differs then, and threads that wait
// for each other for ever are found. Instructions do what PTX's manual says of them; copies that are under way are NaN
// until they are waited for.

namespace tidemark::emulated {

struct Index {
  unsigned x = 0, y = 0;
};
struct Size {
  unsigned x = 1, y = 1;
  Size(unsigned of_x, unsigned of_y = 1) : x(of_x), y(of_y) {}  // NOLINT(google-explicit-constructor): as dim3
};

/// Where the calling thread stands.
const Index& ThreadIndex();
const Index& BlockIndex();
const Size& GridSize();
unsigned Lane();

/// Runs `kernel` as every thread of every block.
void Launch(unsigned blocks, Size threads, std::size_t shared_bytes, const std::function<void()>& kernel);
unsigned char* SharedMemory();

void SyncWarp();
void SyncBlock();
int SyncBlockOr(int any);

/// What a warp's threads hand to each other: of lane i, at i 64 bytes. Valid until the thread shares again.
const std::byte* Share(const void* mine, std::size_t bytes);
template <class T>
T SharedBy(const std::byte* all, unsigned lane) {
  T value;
  std::memcpy(&value, all + 64 * lane, sizeof(T));
  return value;
}

void CopyAsync(void* to, const void* from, int size, int bytes);
void WaitForCopies();

}  // namespace tidemark::emulated

// CUDA's words.

#define __host__
#define __device__
#define __global__
#define __shared__ static
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) alignas(n)
#define threadIdx ::tidemark::emulated::ThreadIndex()
#define blockIdx ::tidemark::emulated::BlockIndex()
#define gridDim ::tidemark::emulated::GridSize()
using dim3 = tidemark::emulated::Size;

inline void __syncwarp() { tidemark::emulated::SyncWarp(); }
inline void __syncthreads() { tidemark::emulated::SyncBlock(); }
inline int __syncthreads_or(int any) { return tidemark::emulated::SyncBlockOr(any); }
template <class T>
T __shfl_xor_sync(unsigned, T value, int lanes) {
  const std::byte* all = tidemark::emulated::Share(&value, sizeof(value));
  return tidemark::emulated::SharedBy<T>(all, tidemark::emulated::Lane() ^ static_cast<unsigned>(lanes));
}
inline unsigned __ballot_sync(unsigned, bool mine) {
  const std::byte* all = tidemark::emulated::Share(&mine, sizeof(mine));
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    ballot |= tidemark::emulated::SharedBy<bool>(all, lane) ? 1U << lane : 0U;
  }
  return ballot;
}
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline int __popc(unsigned bits) { return __builtin_popcount(bits); }

using __half = Eigen::half;
inline float __half2float(__half value) { return static_cast<float>(value); }
inline __half __float2half_rn(float value) { return __half(value); }
inline __half __ushort_as_half(std::uint16_t bits) { return Eigen::numext::bit_cast<__half>(bits); }
inline std::uint16_t __half_as_ushort(__half value) { return Eigen::numext::bit_cast<std::uint16_t>(value); }
struct __half2 {
  std::uint16_t low, high;
};
inline __half2 __floats2half2_rn(float low, float high) {
  return {__half_as_ushort(__half(low)), __half_as_ushort(__half(high))};
}
inline std::uint16_t __float2bfloat16_rn(float value) {
  return Eigen::numext::bit_cast<std::uint16_t>(Eigen::bfloat16(value));
}
inline std::uint16_t __bfloat16_as_ushort(std::uint16_t bits) { return bits; }
struct __nv_bfloat162 {
  std::uint16_t low, high;
};
inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) {
  return {__float2bfloat16_rn(low), __float2bfloat16_rn(high)};
}

using cudaStream_t = void*;
enum cudaError_t { cudaSuccess };
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize };
enum cudaMemcpyKind { cudaMemcpyDeviceToDevice };
inline const char* cudaGetErrorString(cudaError_t) { return "no error"; }
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
template <class Kernel>
cudaError_t cudaFuncSetAttribute(Kernel, cudaFuncAttribute, std::size_t) {
  return cudaSuccess;
}
inline cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind, cudaStream_t) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
inline cudaError_t cudaMemsetAsync(void* at, int byte, std::size_t bytes, cudaStream_t) {
  std::memset(at, byte, bytes);
  return cudaSuccess;
}

// kernels/ptx.cuh

#define TIDEMARK_EMULATED_GPU
#define TIDEMARK_LAUNCH(kernel, blocks, threads, shared, stream, ...) \
  ((void)(stream), ::tidemark::emulated::Launch(blocks, threads, shared, [&] { kernel(__VA_ARGS__); }))
#define TIDEMARK_SHARED_MEMORY(name) unsigned char* const name = ::tidemark::emulated::SharedMemory()

namespace tidemark::kernels::cuda::ptx {

template <int kSize>
void CopyAsync(void* to, const void* from, int bytes) {
  emulated::CopyAsync(to, from, kSize, bytes);
}
inline void WaitForCopies() { emulated::WaitForCopies(); }
void LoadMatrices(unsigned (&to)[4], const void* from);
void LoadTurnedMatrices(unsigned (&to)[4], const void* from);
void AddProductOfBf16(float (&sums)[4], const unsigned (&left)[4], const unsigned* right);
void AddProductOfFp16(float (&sums)[4], const unsigned (&left)[4], const unsigned* right);
inline void StoreWords(void* to, const unsigned (&words)[4]) {
  struct alignas(16) Words {
    unsigned words[4];
  };
  *static_cast<Words*>(to) = {{words[0], words[1], words[2], words[3]}};
}
inline float LargerOrNaN(float a, float b) { return a != a || b != b ? NAN : a > b ? a : b; }
inline float Reciprocal(float x) { return std::abs(x) > 0x1p126F ? std::copysign(0.F, x) : 1 / x; }
inline float PowerOf2(float x) {
  const float power = std::exp2(x);
  return power < 0x1p-126F ? 0 : power;
}

}  // namespace tidemark::kernels::cuda::ptx

#ifdef TIDEMARK_KERNELS_OF_A_GPU
#define __CUDACC__
#define __CUDA_ARCH__ 900
#endif
