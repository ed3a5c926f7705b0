// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstring>
#include <memory>

#include "kernels/ptx.cuh"
#include "kernels/stored.cuh"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {

// Work in tiles: a body runs once per block, with memory that the block's threads share, and does its work in steps
// between barriers. On the host the calling thread takes all steps in the same order, so that what can be wrong about
// tiles, masks and ragged ends is wrong on the host as well; a missing barrier is not, hence the rule: a warp owns a
// strip of a tile's rows, what it writes there it reads behind SyncStrip(), and what others read behind Sync().

/// A tile has kSide rows; a strip is a warp's share of them.
inline constexpr int kSide = 64, kStrip = 16, kTileThreads = kSide / kStrip * kWarp;
static_assert(kTileThreads == 2 * kSide, "two threads per row, in the warp that owns its strip");

/// What one block may share on sm_90, less what the kernel itself takes: CUDA programming guide, compute capabilities.
inline constexpr std::size_t kMostShared = 226 * 1024;

/// A tile in shared memory. Rows lie 16 bytes further apart than they are long: rows of 32, 48, 64 or 128 elements of
/// any size then begin in different banks, four by four.
template <class T, int kColumns>
struct alignas(32) Tile {
  static constexpr int kStride = kColumns + 16 / static_cast<int>(sizeof(T));

  T elements[kSide * kStride];

  __host__ __device__ T& At(int row, int column) { return elements[row * kStride + column]; }
  __host__ __device__ const T& At(int row, int column) const { return elements[row * kStride + column]; }
};

/// The threads of a block.
class TileTeam {
 public:
  __host__ __device__ int rank() const {
#ifdef __CUDA_ARCH__
    return static_cast<int>(threadIdx.x);
#else
    return 0;
#endif
  }

  /// Calls `body(i)` for i in [0, count), thread i % kTileThreads does i. Of i in [0, 2 kSide) a strip's own warp does
  /// both i of a row i / 2.
  template <class Body>
  __host__ __device__ void Each(int count, Body body) const {
#ifdef __CUDA_ARCH__
    constexpr int kSize = kTileThreads;
#pragma unroll 1
#else
    constexpr int kSize = 1;
#endif
    for (int i = rank(); i < count; i += kSize) {
      body(i);
    }
  }

  /// Calls `body(row, column, first + row stride)` for rows [0, kSide) and columns [0, kColumns), all of them under way
  /// together.
  template <int kColumns, class T, class Body>
  __host__ __device__ void EachIn(const T* first, std::int64_t stride, Body body) const {
#ifdef __CUDA_ARCH__
    constexpr int kSteps = kSide * kColumns / kTileThreads, kDown = kTileThreads / kColumns;
    static_assert(kSteps * kTileThreads == kSide * kColumns);
    const T* at = first + rank() / kColumns * stride;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      if constexpr (kTileThreads % kColumns == 0) {  // a thread's are below each other
        body(rank() / kColumns + step * kDown, rank() % kColumns, at);
        at += kDown * stride;
      } else {
        const int i = rank() + step * kTileThreads;
        body(i / kColumns, i % kColumns, first + i / kColumns * stride);
      }
    }
#else
    Each(kSide * kColumns, [&](int i) { body(i / kColumns, i % kColumns, first + i / kColumns * stride); });
#endif
  }

  /// Calls `body(row, column)` for the rows of a warp's strip and columns [0, kColumns).
  template <int kColumns, class Body>
  __host__ __device__ void EachInStrip(Body body) const {
#ifdef __CUDA_ARCH__
    const int first = rank() / kWarp * kStrip;
#pragma unroll 4
    for (int i = rank() % kWarp; i < kStrip * kColumns; i += kWarp) {
      body(first + i / kColumns, i % kColumns);
    }
#else
    Each(kSide * kColumns, [&](int i) { body(i / kColumns, i % kColumns); });
#endif
  }

  /// All threads of the block wait for each other, and for what they have copied (CopyWord).
  __host__ __device__ void Sync() const {
#ifdef __CUDA_ARCH__
    ptx::WaitForCopies();
    __syncthreads();
#endif
  }
  /// All threads of a warp do.
  __host__ __device__ void SyncStrip() const {
#ifdef __CUDA_ARCH__
    __syncwarp();
#endif
  }
};

/// 16 bytes, which are copied at once where they lie at multiples of 16.
struct alignas(16) Word {
  std::uint32_t parts[4];
};
template <class T>
inline constexpr int kPerWord = 16 / static_cast<int>(sizeof(T));

/// Copies a word into shared memory, or writes zeros if there is none. Nobody may look before the team's next Sync: the
/// copies of a thread are under way together.
template <class T>
__host__ __device__ inline void CopyWord(bool is_there, const T* from, T* to) {
#ifdef __CUDA_ARCH__
  ptx::CopyAsync<sizeof(Word)>(to, from, is_there ? sizeof(Word) : 0);  // without a branch
#else
  if (is_there) {
    std::memcpy(to, from, sizeof(Word));
  } else {
    std::memset(to, 0, sizeof(Word));
  }
#endif
}
/// The same of one number.
__host__ __device__ inline void CopyNumber(bool is_there, const float* from, float* to) {
#ifdef __CUDA_ARCH__
  ptx::CopyAsync<sizeof(float)>(to, from, is_there ? sizeof(float) : 0);
#else
  *to = is_there ? *from : 0;
#endif
}

/// Copies a word out of shared memory.
template <class T>
__host__ __device__ inline void StoreWord(const T* from, T* to) {
#ifdef __CUDA_ARCH__
  *reinterpret_cast<Word*>(to) = *reinterpret_cast<const Word*>(from);
#else
  std::memcpy(to, from, sizeof(Word));
#endif
}

#ifdef __CUDACC__
/// Body::kResident: how many blocks a processor has registers for at a time.
template <class Body>
__global__ void __launch_bounds__(kTileThreads, Body::kResident) BlocksOnDevice(std::int64_t blocks, Body body) {
  TIDEMARK_SHARED_MEMORY(memory);
  for (std::int64_t block = blockIdx.x; block < blocks; block += gridDim.x) {
    body(TileTeam(), *reinterpret_cast<typename Body::Memory*>(memory), block);
    __syncthreads();  // the next block's writes wait for this one's reads
  }
}
#endif

/// Calls `body(team, memory, block)` for block in [0, blocks), in any order. The memory is undefined at first: on the
/// host, NaN.
template <class Body>
void EachBlock(const Queue& queue, std::int64_t blocks, const Body& body) {
  using Memory = typename Body::Memory;
  static_assert(sizeof(Memory) <= kMostShared && alignof(Memory) <= 128 && std::is_trivial_v<Memory>);
  if (queue.kind == Queue::Kind::host) {
    const auto memory = std::make_unique<Memory>();
    for (std::int64_t block = 0; block < blocks; ++block) {
      std::memset(memory.get(), 0xFF, sizeof(Memory));
      body(TileTeam(), *memory, block);
    }
    return;
  }
#ifdef __CUDACC__
  if (blocks > 0) {
    Check(cudaFuncSetAttribute(BlocksOnDevice<Body>, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Memory)),
          __FILE__, __LINE__);
    LaunchWaiting(queue);
    TIDEMARK_LAUNCH(BlocksOnDevice, Blocks(blocks), kTileThreads, sizeof(Memory), Stream(queue), blocks, body);
    Check(cudaGetLastError(), __FILE__, __LINE__);
  }
#else
  TIDEMARK_CHECK(false && "a stream's work needs the CUDA toolkit");
#endif
}

}  // namespace tidemark::kernels::cuda
