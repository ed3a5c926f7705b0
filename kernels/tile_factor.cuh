// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/ptx.cuh"
#include "kernels/tile.cuh"

namespace tidemark::kernels::cuda {

// A tile of T that many products have as their left one (tile_sum.cuh).
//
//   Keep(team, tile)               the tile, which has been synchronized, and stays as it is

/// The host reads it where it is.
template <class T, int kInner>
class FactorOnHost {
 public:
  __host__ __device__ void Keep(const TileTeam& /*team*/, const Tile<T, kInner>& tile) { tile_ = &tile; }
  __host__ __device__ const Tile<T, kInner>& tile() const { return *tile_; }

 private:
  const Tile<T, kInner>* tile_ = nullptr;
};

#ifdef __CUDACC__
/// A warp's strip of the tile, in registers where it is narrow enough: a product by a tile of 64 columns then loads
/// four times for eight instructions of tensor cores, else five times.
template <class T, int kInner>
class FactorOnTensorCores {
 public:
  static constexpr bool kIsKept = kInner <= 64;

  __device__ void Keep(const TileTeam& team, const Tile<T, kInner>& tile) {
    const int lane = team.rank() % kWarp;
    at_ = &tile.At(team.rank() / kWarp * kStrip + lane % kStrip, lane / kStrip * 8);
    if constexpr (kIsKept) {
      __syncwarp();
#pragma unroll
      for (int part = 0; part < kInner / kStrip; ++part) {
        ptx::LoadMatrices(parts_[part], at_ + part * kStrip);
      }
    }
  }
  /// Rows 0 to 7 and 8 to 15 of columns [k, k + 8), then of the next 8.
  __device__ void Get(int k, unsigned (&left)[4]) const {
    if constexpr (kIsKept) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        left[i] = parts_[k / kStrip][i];
      }
    } else {
      ptx::LoadMatrices(left, at_ + k);
    }
  }

 private:
  const T* at_ = nullptr;
  unsigned parts_[kIsKept ? kInner / kStrip : 1][4];
};

#endif

#ifdef __CUDA_ARCH__
/// Of narrow tiles only.
template <class T, int kInner>
using Factor = FactorOnTensorCores<T, kInner>;
#else
template <class T, int kInner>
using Factor = FactorOnHost<T, kInner>;
#endif

}  // namespace tidemark::kernels::cuda
