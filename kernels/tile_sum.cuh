// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/matrices.cuh"
#include "kernels/tile.cuh"
#include "kernels/tile_factor.cuh"

namespace tidemark::kernels::cuda {

// A tile of sums, kSide x kColumns, of products of tiles of T. A warp keeps its strip of it in registers: on tensor
// cores (PTX mma) where T has two bytes, which multiply without a rounding and add in fp32, though in an order and with
// a rounding of their own; else by fused multiply-adds. The host keeps all strips. Three kinds of one interface:
//
//   Clear()
//   AddTransposed(team, a, b)      += a b^T, with as many columns as b has rows; a is a tile or a Factor
//   AddRounded(team, room, a, b)   += a b, where a's elements are the sums a, rounded
//   AddTransposedToAll<kTall>(team, sums, a, b), AddRoundedToAll<kTall>(team, room, sums, a, b)
//                                  of kTall sums with an a each: what is loaded of b serves all
//   Each(team, body)               body(row, column, sum&) for each of the warp's own
//   EachWith(team, other, body)    body(row, column, sum&, other's)
//
// A thread also has the values of the kRows rows that its sums are of, `C values[kRows]`, as have those it shares them
// with. Which rows these are does not depend on the number of columns.
//
//   EachInRow(body)                body(i, sum&) for each of the thread's own, in the i-th of its rows
//   Join(values, two)              values[i] = two(mine, another's) over all who share the row, the same for all
//   EachRow(team, body)            body(i, row), on one of those who share it

/// Where AddRounded puts what cannot stay with its threads.
struct NoRoom {};
template <class T>
using Room = std::conditional_t<kIsNarrow<T>, NoRoom, Tile<T, kSide>>;

/// What the host adds with: fused multiply-adds of the widened elements, one inner index after the other.
template <class T, int kColumns>
class SumsOnHost {
 public:
  using C = WideOf<T>;
  static constexpr int kRows = kSide;

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
  template <int kInner>
  __host__ __device__ void AddTransposed(const TileTeam& team, const FactorOnHost<T, kInner>& a,
                                         const Tile<T, kInner>& b) {
    AddTransposed(team, a.tile(), b);
  }
  void AddRounded(const TileTeam& /*team*/, Room<T>& /*room*/, const SumsOnHost<T, kSide>& a,
                  const Tile<T, kColumns>& b) {
    auto rounded = std::make_unique<Tile<T, kSide>>();
    for (int i = 0; i < kSide * kSide; ++i) {
      rounded->At(i / kSide, i % kSide) = Rounded<T>(a.sums_[i]);
    }
    AddProducts<kSide>(*rounded, [&](int k, int column) { return Widened(b.At(k, column)); });
  }

  template <int kTall, int kInner>
  static __host__ __device__ void AddTransposedToAll(const TileTeam& team, SumsOnHost* sums, const Tile<T, kInner>* a,
                                                     const Tile<T, kInner>& b) {
    for (int tall = 0; tall < kTall; ++tall) {
      sums[tall].AddTransposed(team, a[tall], b);
    }
  }
  template <int kTall>
  static void AddRoundedToAll(const TileTeam& team, Room<T>& room, SumsOnHost* sums, const SumsOnHost<T, kSide>* a,
                              const Tile<T, kColumns>& b) {
    for (int tall = 0; tall < kTall; ++tall) {
      sums[tall].AddRounded(team, room, a[tall], b);
    }
  }

  template <class Body>
  __host__ __device__ void Each(const TileTeam& team, Body body) {
    EachWith(team, *this, [&](int row, int column, C& sum, C) { body(row, column, sum); });
  }
  template <class Body>
  __host__ __device__ void EachWith(const TileTeam& /*team*/, const SumsOnHost& other, Body body) {
    for (int i = 0; i < kRows * kColumns; ++i) {
      body(i / kColumns, i % kColumns, sums_[i], other.sums_[i]);
    }
  }

  template <class Body>
  __host__ __device__ void EachInRow(Body body) {
    for (int i = 0; i < kRows * kColumns; ++i) {
      body(i / kColumns, sums_[i]);
    }
  }
  template <class Two>
  static __host__ __device__ void Join(C (&)[kRows], Two) {}
  template <class Body>
  static __host__ __device__ void EachRow(const TileTeam& /*team*/, Body body) {
    for (int row = 0; row < kRows; ++row) {
      body(row, row);
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

  C sums_[kRows * kColumns];
};

#ifdef __CUDACC__
/// Sums where mma.m16n8k16 has them: PTX ISA, "Matrix fragments for mma.m16n8k16". Lane 4 g + t of a warp has of every
/// 8 columns those of 2 t and 2 t + 1, first in row g of the strip, then in row g + 8.
template <class T, int kColumns>
class SumsOnTensorCores {
 public:
  static constexpr int kRows = 2;

  __device__ void Clear() {
    EachInRow([](int, float& sum) { sum = 0; });
  }

  template <int kInner>
  __device__ void AddTransposed(const TileTeam& team, const Tile<T, kInner>& a, const Tile<T, kInner>& b) {
    AddTransposedToAll<1>(team, this, &a, b);
  }
  template <int kInner>
  __device__ void AddTransposed(const TileTeam& team, const FactorOnTensorCores<T, kInner>& a,
                                const Tile<T, kInner>& b) {
    static_assert(kColumns == kSide && kInner % kStrip == 0);
    __syncwarp();
#pragma unroll
    for (int k = 0; k < kInner; k += kStrip) {
      unsigned left[1][4];
      a.Get(k, left[0]);
      AddColumns(team, this, k, left, b);
    }
  }
  __device__ void AddRounded(const TileTeam& team, NoRoom& room, const SumsOnTensorCores<T, kSide>& a,
                             const Tile<T, kColumns>& b) {
    AddRoundedToAll<1>(team, room, this, &a, b);
  }

  template <int kTall, int kInner>
  static __device__ void AddTransposedToAll(const TileTeam& team, SumsOnTensorCores* sums, const Tile<T, kInner>* a,
                                            const Tile<T, kInner>& b) {
    static_assert(kColumns == kSide && kInner % kStrip == 0);
    const int lane = team.rank() % kWarp;
    __syncwarp();  // all of a warp load and multiply at once
#pragma unroll 4
    for (int k = 0; k < kInner; k += kStrip) {
      unsigned left[kTall][4];  // rows 0 to 7 and 8 to 15 of the first 8 columns, then of the next 8
#pragma unroll
      for (int tall = 0; tall < kTall; ++tall) {
        ptx::LoadMatrices(left[tall], &a[tall].At(FirstRow(team) + lane % kStrip, k + lane / kStrip * 8));
      }
      AddColumns(team, sums, k, left, b);
    }
  }

  /// A thread has the sums of two products where a third one wants its left factor: rows g and g + 8, columns 2 t and
  /// 2 t + 8 and the next. Nothing goes through memory.
  template <int kTall>
  static __device__ void AddRoundedToAll(const TileTeam& team, NoRoom& /*room*/, SumsOnTensorCores* sums,
                                         const SumsOnTensorCores<T, kSide>* a, const Tile<T, kColumns>& b) {
    static_assert(kColumns % kStrip == 0);
    const int lane = team.rank() % kWarp;
    __syncwarp();
#pragma unroll
    for (int k = 0; k < kSide; k += kStrip) {
      unsigned left[kTall][4];
#pragma unroll
      for (int i = 0; i < 4 * kTall; ++i) {
        const float* const two = a[i / 4].sums_[k / 8 + i % 4 / 2] + i % 2 * 2;
        left[i / 4][i % 4] = RoundedTwo<T>(two[0], two[1]);
      }
#pragma unroll
      for (int column = 0; column < kColumns; column += kStrip) {
        unsigned right[4];  // rows 0 to 7 and 8 to 15 of the first 8 columns, then of the next 8
        ptx::LoadTurnedMatrices(right, &b.At(k + lane % kStrip, column + lane / kStrip * 8));
        AddProducts(sums, column, left, right);
      }
    }
  }

  template <class Body>
  __device__ void Each(const TileTeam& team, Body body) {
    EachWith(team, *this, [&](int row, int column, float& sum, float) { body(row, column, sum); });
  }
  template <class Body>
  __device__ void EachWith(const TileTeam& team, const SumsOnTensorCores& other, Body body) {
    const int first = team.rank() % 4 * 2;
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      const int part = i / 4, at = i % 4;
      body(Row(team, at / 2), part * 8 + first + at % 2, sums_[part][at], other.sums_[part][at]);
    }
  }

  template <class Body>
  __device__ void EachInRow(Body body) {
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) {
      body(i % 4 / 2, sums_[i / 4][i % 4]);
    }
  }
  template <class Two>
  static __device__ void Join(float (&values)[kRows], Two two) {
#pragma unroll
    for (float& value : values) {
      value = two(value, __shfl_xor_sync(0xFFFFFFFFU, value, 1));
      value = two(value, __shfl_xor_sync(0xFFFFFFFFU, value, 2));
    }
  }
  template <class Body>
  static __device__ void EachRow(const TileTeam& team, Body body) {
    if (team.rank() % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        body(i, Row(team, i));
      }
    }
  }

 private:
  template <class, int>
  friend class SumsOnTensorCores;

  static __device__ int FirstRow(const TileTeam& team) { return team.rank() / kWarp * kStrip; }
  /// Of the thread's i-th row.
  static __device__ int Row(const TileTeam& team, int i) { return FirstRow(team) + team.rank() % kWarp / 4 + i * 8; }

  /// Of columns [k, k + 16) of the left ones and of b.
  template <int kTall, int kInner>
  static __device__ void AddColumns(const TileTeam& team, SumsOnTensorCores* sums, int k,
                                    const unsigned (&left)[kTall][4], const Tile<T, kInner>& b) {
    const int lane = team.rank() % kWarp;
#pragma unroll
    for (int column = 0; column < kColumns; column += kStrip) {
      unsigned right[4];  // columns 0 to 7 and 8 to 15 of the first 8 of b's rows, then of the next 8
      ptx::LoadMatrices(right, &b.At(column + lane / kStrip * 8 + lane % 8, k + lane / 8 % 2 * 8));
      AddProducts(sums, column, left, right);
    }
  }
  /// To 16 columns of all.
  template <int kTall>
  static __device__ void AddProducts(SumsOnTensorCores* sums, int column, const unsigned (&left)[kTall][4],
                                     const unsigned (&right)[4]) {
#pragma unroll
    for (int tall = 0; tall < kTall; ++tall) {
      AddProduct<T>(sums[tall].sums_[column / 8], left[tall], right);
      AddProduct<T>(sums[tall].sums_[column / 8 + 1], left[tall], right + 2);
    }
  }
  float sums_[kColumns / 8][4];
};

/// A thread's sums: every fourth row of the strip, every eighth column, so that a warp's reads of either tile fall into
/// different banks or are one word for several threads.
template <class C, int kColumns>
class SumsOfThreads {
 private:
  static constexpr int kDown = 4, kAcross = kWarp / kDown, kEach = kColumns / kAcross;

 public:
  static constexpr int kRows = kStrip / kDown;

  __device__ void Clear() {
    EachInRow([](int, C& sum) { sum = 0; });
  }

  template <int kInner>
  __device__ void AddTransposed(const TileTeam& team, const Tile<C, kInner>& a, const Tile<C, kInner>& b) {
    static_assert(kColumns == kSide);
    AddProducts<kInner>(team, a, [&](int k, int column) { return b.At(column, k); });
  }

  __device__ void AddRounded(const TileTeam& team, Tile<C, kSide>& room, SumsOfThreads<C, kSide>& a,
                             const Tile<C, kColumns>& b) {
    team.SyncStrip();
    a.Each(team, [&](int row, int column, C& sum) { room.At(row, column) = sum; });
    team.SyncStrip();
    AddProducts<kSide>(team, room, [&](int k, int column) { return b.At(k, column); });
  }

  // A thread has no registers for more than one.
  template <int kTall, int kInner>
  static __device__ void AddTransposedToAll(const TileTeam& team, SumsOfThreads* sums, const Tile<C, kInner>* a,
                                            const Tile<C, kInner>& b) {
    static_assert(kTall == 1);
    sums->AddTransposed(team, *a, b);
  }
  template <int kTall>
  static __device__ void AddRoundedToAll(const TileTeam& team, Tile<C, kSide>& room, SumsOfThreads* sums,
                                         SumsOfThreads<C, kSide>* a, const Tile<C, kColumns>& b) {
    static_assert(kTall == 1);
    sums->AddRounded(team, room, *a, b);
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

  template <class Body>
  __device__ void EachInRow(Body body) {
#pragma unroll
    for (int i = 0; i < kRows * kEach; ++i) {
      body(i / kEach, sums_[i]);
    }
  }
  template <class Two>
  static __device__ void Join(C (&values)[kRows], Two two) {
#pragma unroll
    for (C& value : values) {
#pragma unroll
      for (int lane = 1; lane < kAcross; lane *= 2) {
        value = two(value, __shfl_xor_sync(0xFFFFFFFFU, value, lane));
      }
    }
  }
  template <class Body>
  static __device__ void EachRow(const TileTeam& team, Body body) {
    if (team.rank() % kAcross == 0) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) {
        body(i, Row(team, i));
      }
    }
  }

 private:
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
using Sums = std::conditional_t<kIsNarrow<T>, SumsOnTensorCores<T, kColumns>, SumsOfThreads<WideOf<T>, kColumns>>;
#else
template <class T, int kColumns>
using Sums = SumsOnHost<T, kColumns>;
#endif

}  // namespace tidemark::kernels::cuda
