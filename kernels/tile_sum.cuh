// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/tile.cuh"

namespace tidemark::kernels::cuda {

// A tile of sums, kSide x kColumns, of products of tiles of T. A warp keeps its strip of it in registers: on tensor
// cores (wmma) where T has two bytes, which multiply without a rounding and add in fp32, though in an order and with a
// rounding of their own; else by fused multiply-adds. The host keeps all strips. Three kinds of one interface:
//
//   Clear()
//   AddTransposed(team, a, b)      += a b^T, with as many columns as b has rows
//   Add(team, a, b)                += a b
//   Each(team, body)               body(row, column, sum&) for each of the warp's own
//   EachWith(team, other, body)    body(row, column, sum&, other's)

/// What the host adds with: fused multiply-adds of the widened elements, one inner index after the other.
template <class T, int kColumns>
class SumsOnHost {
 public:
  using C = SumOfTile<T>;

  __host__ __device__ void Clear() {
    for (C& sum : sums_) {
      sum = 0;
    }
  }

  template <int kInner>
  __host__ __device__ void AddTransposed(const TileTeam& /*team*/, const Tile<T, kInner>& a, const Tile<T, kInner>& b) {
    static_assert(kColumns == kSide);
    AddProducts<kInner>(a, [&](int k, int column) { return Widened(b.At(column, k)); });
  }
  __host__ __device__ void Add(const TileTeam& /*team*/, const Tile<T, kSide>& a, const Tile<T, kColumns>& b) {
    AddProducts<kSide>(a, [&](int k, int column) { return Widened(b.At(k, column)); });
  }

  /// += a b, where a's elements are these sums, rounded.
  void AddRounded(const TileTeam& /*team*/, Tile<T, kSide>& /*room*/, const SumsOnHost<T, kSide>& a,
                  const Tile<T, kColumns>& b) {
    auto rounded = std::make_unique<Tile<T, kSide>>();
    for (int i = 0; i < kSide * kSide; ++i) {
      rounded->At(i / kSide, i % kSide) = Rounded<T>(a.sums_[i]);
    }
    AddProducts<kSide>(*rounded, [&](int k, int column) { return Widened(b.At(k, column)); });
  }

  template <class Body>
  __host__ __device__ void Each(const TileTeam& /*team*/, Body body) {
    for (int i = 0; i < kSide * kColumns; ++i) {
      body(i / kColumns, i % kColumns, sums_[i]);
    }
  }
  template <class Body>
  __host__ __device__ void EachWith(const TileTeam& /*team*/, const SumsOnHost& other, Body body) {
    for (int i = 0; i < kSide * kColumns; ++i) {
      body(i / kColumns, i % kColumns, sums_[i], other.sums_[i]);
    }
  }

 private:
  template <class, int>
  friend class SumsOnHost;

  template <int kInner, class Element>
  __host__ __device__ void AddProducts(const Tile<T, kInner>& a, Element b) {
    for (int k = 0; k < kInner; ++k) {
      C row[kColumns];
      for (int column = 0; column < kColumns; ++column) {
        row[column] = b(k, column);
      }
      for (int i = 0; i < kSide; ++i) {
        const C factor = Widened(a.At(i, k));
        for (int column = 0; column < kColumns; ++column) {
          sums_[i * kColumns + column] += factor * row[column];
        }
      }
    }
  }

  C sums_[kSide * kColumns];
};

#ifdef __CUDACC__
namespace wmma = nvcuda::wmma;

/// Fragments of 16 x 16, side by side. CUDA programming guide, warp matrix functions.
template <class T, int kColumns>
class SumsOnTensorCores {
 public:
  __device__ void Clear() {
#pragma unroll
    for (Sums& sums : parts_) {
      wmma::fill_fragment(sums, 0.0F);
    }
  }

  template <int kInner>
  __device__ void AddTransposed(const TileTeam& team, const Tile<T, kInner>& a, const Tile<T, kInner>& b) {
    static_assert(kColumns == kSide);
    AddProducts<kInner, wmma::col_major>(
        team, a, [&](int k, int column) { return &b.At(column, k); }, b.kStride);
  }
  __device__ void Add(const TileTeam& team, const Tile<T, kSide>& a, const Tile<T, kColumns>& b) {
    AddProducts<kSide, wmma::row_major>(
        team, a, [&](int k, int column) { return &b.At(k, column); }, b.kStride);
  }

  /// += a b, where a's elements are these sums, rounded. `room`: where those go that cannot stay with their threads.
  __device__ void AddRounded(const TileTeam& team, Tile<T, kSide>& room, SumsOnTensorCores<T, kSide>& a,
                             const Tile<T, kColumns>& b) {
    if constexpr (std::is_same_v<T, Bf16>) {
      if (team.sums_lie_as_of_mma()) {
        AddFromThreads(team, a, b);
        return;
      }
    }
    team.SyncStrip();
    a.Each(team, [&](int row, int column, float& sum) { room.At(row, column) = Rounded<T>(sum); });
    team.SyncStrip();
    Add(team, room, b);
  }

  template <class Body>
  __device__ void Each(const TileTeam& team, Body body) {
    EachWith(team, *this, [&](int row, int column, float& sum, float) { body(row, column, sum); });
  }
  template <class Body>
  __device__ void EachWith(const TileTeam& team, const SumsOnTensorCores& other, Body body) {
#pragma unroll
    for (int i = 0; i < TileTeam::kOfThread; ++i) {
      const int row = FirstRow(team) + team.place(i) / kStrip, column = team.place(i) % kStrip;
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        body(row, part * kStrip + column, parts_[part].x[i], other.parts_[part].x[i]);
      }
    }
  }

 private:
  template <class, int>
  friend class SumsOnTensorCores;

  static constexpr int kParts = kColumns / kStrip;
  using Element = std::conditional_t<std::is_same_v<T, Bf16>, __nv_bfloat16, __half>;
  using Sums = wmma::fragment<wmma::accumulator, kStrip, kStrip, kStrip, float>;

  static __device__ int FirstRow(const TileTeam& team) { return team.rank() / kWarp * kStrip; }

  /// A thread has the sums of two mma.m16n8k16 where a third one wants its left factor (PTX ISA, "Matrix fragments for
  /// mma.m16n8k16"): rows g and g + 8, columns 2 t and 2 t + 8 and the next, of its lane 4 g + t. Nothing goes through
  /// memory. The right factor's columns are 8 by 8 matrices, turned as they are loaded (PTX ISA, ldmatrix).
  __device__ void AddFromThreads(const TileTeam& team, const SumsOnTensorCores<T, kSide>& a,
                                 const Tile<T, kColumns>& b) {
    const int lane = team.rank() % kWarp;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < kSide / kStrip; ++k) {
      unsigned left[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const __nv_bfloat162 two = __floats2bfloat162_rn(a.parts_[k].x[2 * i], a.parts_[k].x[2 * i + 1]);
        left[i] = *reinterpret_cast<const unsigned*>(&two);
      }
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        unsigned right[4];  // rows 0 to 7 and 8 to 15 of the first 8 columns, then of the next 8
        const T* const from = &b.At(k * kStrip + lane % kStrip, part * kStrip + lane / kStrip * 8);
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(right[0]), "=r"(right[1]), "=r"(right[2]), "=r"(right[3])
                     : "r"(static_cast<unsigned>(__cvta_generic_to_shared(from)))
                     : "memory");
        AddProduct(parts_[part].x, left, right);
        AddProduct(parts_[part].x + 4, left, right + 2);
      }
    }
  }
  static __device__ void AddProduct(float* sums, const unsigned (&left)[4], const unsigned* right) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
  }

  /// wmma::load_matrix_sync from shared memory. For bf16 nvcc 13 makes a load from anywhere of it, which is seven
  /// instructions instead of one; PTX says where (PTX ISA, wmma.load).
  template <class Use, class Layout>
  static __device__ void Load(wmma::fragment<Use, kStrip, kStrip, kStrip, Element, Layout>& to, const T* from,
                              int stride) {
    if constexpr (std::is_same_v<T, Bf16>) {
      static_assert(sizeof(to) == 4 * sizeof(unsigned));
      auto* words = reinterpret_cast<unsigned*>(&to);
      const auto address = static_cast<unsigned>(__cvta_generic_to_shared(from));
      if constexpr (std::is_same_v<Use, wmma::matrix_a>) {
        static_assert(std::is_same_v<Layout, wmma::row_major>);
        asm volatile("wmma.load.a.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address), "r"(stride)
                     : "memory");
      } else if constexpr (std::is_same_v<Layout, wmma::row_major>) {
        asm volatile("wmma.load.b.sync.aligned.row.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address), "r"(stride)
                     : "memory");
      } else {
        asm volatile("wmma.load.b.sync.aligned.col.m16n16k16.shared.bf16 {%0, %1, %2, %3}, [%4], %5;"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address), "r"(stride)
                     : "memory");
      }
    } else {
      wmma::load_matrix_sync(to, reinterpret_cast<const Element*>(from), static_cast<unsigned>(stride));
    }
  }

  template <int kInner, class Layout, class At>
  __device__ void AddProducts(const TileTeam& team, const Tile<T, kInner>& a, At b, int b_stride) {
    static_assert(kInner % kStrip == 0 && kColumns % kStrip == 0 && Sums::num_elements == TileTeam::kOfThread);
    // Where a fragment may be loaded from. All of a warp load and multiply at once.
    static_assert(kStrip * sizeof(T) % 32 == 0 && kStrip * Tile<T, kInner>::kStride * sizeof(T) % 32 == 0);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < kInner; k += kStrip) {
      wmma::fragment<wmma::matrix_a, kStrip, kStrip, kStrip, Element, wmma::row_major> left;
      Load(left, &a.At(FirstRow(team), k), a.kStride);
#pragma unroll
      for (int part = 0; part < kParts; ++part) {
        wmma::fragment<wmma::matrix_b, kStrip, kStrip, kStrip, Element, Layout> right;
        Load(right, b(k, part * kStrip), b_stride);
        wmma::mma_sync(parts_[part], left, right, parts_[part]);
      }
    }
  }

  Sums parts_[kParts];
};

/// A thread's sums: every fourth row of the strip, every eighth column, so that a warp's reads of either tile fall into
/// different banks or are one word for several threads.
template <class C, int kColumns>
class SumsOfThreads {
 public:
  __device__ void Clear() {
#pragma unroll
    for (int i = 0; i < kRows * kEach; ++i) {
      sums_[i] = 0;
    }
  }

  template <int kInner>
  __device__ void AddTransposed(const TileTeam& team, const Tile<C, kInner>& a, const Tile<C, kInner>& b) {
    static_assert(kColumns == kSide);
    AddProducts<kInner>(team, a, [&](int k, int column) { return b.At(column, k); });
  }
  __device__ void Add(const TileTeam& team, const Tile<C, kSide>& a, const Tile<C, kColumns>& b) {
    AddProducts<kSide>(team, a, [&](int k, int column) { return b.At(k, column); });
  }

  __device__ void AddRounded(const TileTeam& team, Tile<C, kSide>& room, SumsOfThreads<C, kSide>& a,
                             const Tile<C, kColumns>& b) {
    team.SyncStrip();
    a.Each(team, [&](int row, int column, C& sum) { room.At(row, column) = sum; });
    team.SyncStrip();
    Add(team, room, b);
  }

  template <class Body>
  __device__ void Each(const TileTeam& team, Body body) {
    EachWith(team, *this, [&](int row, int column, C& sum, C) { body(row, column, sum); });
  }
  template <class Body>
  __device__ void EachWith(const TileTeam& team, const SumsOfThreads& other, Body body) {
#pragma unroll
    for (int i = 0; i < kRows * kEach; ++i) {
      body(Row(team, i / kEach), Column(team, i % kEach), sums_[i], other.sums_[i]);
    }
  }

 private:
  static constexpr int kDown = 4, kAcross = kWarp / kDown, kRows = kStrip / kDown, kEach = kColumns / kAcross;

  static __device__ int Row(const TileTeam& team, int i) {
    return team.rank() / kWarp * kStrip + team.rank() % kWarp / kAcross + i * kDown;
  }
  static __device__ int Column(const TileTeam& team, int i) { return team.rank() % kAcross + i * kAcross; }

  template <int kInner, class Element>
  __device__ void AddProducts(const TileTeam& team, const Tile<C, kInner>& a, Element b) {
#pragma unroll 2
    for (int k = 0; k < kInner; ++k) {
      C left[kRows];
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        left[row] = a.At(Row(team, row), k);
      }
#pragma unroll
      for (int column = 0; column < kEach; ++column) {
        const C right = b(k, Column(team, column));
#pragma unroll
        for (int row = 0; row < kRows; ++row) {
          sums_[row * kEach + column] += left[row] * right;
        }
      }
    }
  }

  C sums_[kRows * kEach];
};
#endif

#ifdef __CUDA_ARCH__
template <class T, int kColumns>
using Sums = std::conditional_t<kIsNarrow<T>, SumsOnTensorCores<T, kColumns>, SumsOfThreads<SumOfTile<T>, kColumns>>;
#else
template <class T, int kColumns>
using Sums = SumsOnHost<T, kColumns>;
#endif

}  // namespace tidemark::kernels::cuda
