// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>

#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {

// Sums of columns. On the GPU a tile of threads takes a few columns and adds up their rows, those of a column joined in
// a fixed order; where rows are many, several tiles share them, and what comes of that is summed again.

/// A tile of column sums: the threads that share a column, and its columns, a pack of each thread.
inline constexpr int kTile = kThreads / kPack, kTilePacks = kThreads / kTile, kTileColumns = kTilePacks * kPack;

/// Rows that are summed by shares, of `share` rows each or what is left.
struct SharedRows {
  std::int64_t rows, shares, share;
  __host__ __device__ std::int64_t begin(std::int64_t i) const { return i * share; }
  __host__ __device__ std::int64_t end(std::int64_t i) const { return (i + 1) * share < rows ? (i + 1) * share : rows; }
};

/// Of column sums.
__host__ __device__ inline std::int64_t Tiles(std::int64_t columns) { return (columns - 1) / kTileColumns + 1; }

#ifdef __CUDACC__

template <class C, class Terms, class Sums>
__global__ void __launch_bounds__(kThreads)
    ColumnsOnDevice(SharedRows rows, std::int64_t columns, Terms terms, Sums to) {
  __shared__ Pack<C> shared[kTile][kTilePacks];
  const unsigned x = threadIdx.x, y = threadIdx.y;
  for (std::int64_t task = blockIdx.x; task < rows.shares * Tiles(columns); task += gridDim.x) {
    const std::int64_t share = task / Tiles(columns), end = rows.end(share);
    const PackAt mine{(task - share * Tiles(columns)) * kTileColumns + x * kPack};
    Pack<C> sums = {};
    for (std::int64_t row = mine.first < columns ? rows.begin(share) + y : end; row < end; row += kTile) {
      sums =
          Map(std::plus<>(), sums, PackBefore<C>(columns, mine, [&](auto column) { return terms.Term(row, column); }));
    }
    shared[y][x] = sums;
    for (int half = kTile / 2; half > 0; half /= 2) {
      __syncthreads();
      if (static_cast<int>(y) < half) {
        shared[y][x] = Map(std::plus<>(), shared[y][x], shared[y + half][x]);
      }
    }
    for (int lane = 0; y == 0 && lane < kPack && mine.first + lane < columns; ++lane) {
      to.Store(share, mine.first + lane, shared[0][x].lanes[lane]);
    }
    __syncthreads();
  }
}

template <class C, class Terms, class Sums>
void LaunchColumns(const Queue& queue, const SharedRows& rows, std::int64_t columns, const Terms& terms,
                   const Sums& to) {
  LaunchWaiting(queue);
  TIDEMARK_LAUNCH(ColumnsOnDevice<C>, Blocks(rows.shares * Tiles(columns)), dim3(kTilePacks, kTile), 0, Stream(queue),
                  rows, columns, terms, to);
  Check(cudaGetLastError(), __FILE__, __LINE__);
}

#else  // only the host kind of queues

template <class C, class Terms, class Sums>
void LaunchColumns(const Queue& queue, const SharedRows&, std::int64_t columns, const Terms& terms, const Sums&) {
  LaunchElements(queue, columns, terms);
}

#endif

/// Calls `to.Store(share, column, sum over the share's rows of terms.Term(row, column))`. Terms are asked for in packs
/// of columns as well.
template <class C, class Terms, class Sums>
void EachColumnOfShares(const Queue& queue, const SharedRows& rows, std::int64_t columns, const Terms& terms,
                        const Sums& to) {
  if (queue.kind == Queue::Kind::host) {
    for (std::int64_t share = 0; share < rows.shares; ++share) {
      for (std::int64_t column = 0; column < columns; ++column) {
        C sums[kTile] = {};
        for (std::int64_t row = rows.begin(share); row < rows.end(share); ++row) {
          sums[(row - rows.begin(share)) % kTile] += terms.Term(row, column);
        }
        for (int half = kTile / 2; half > 0; half /= 2) {
          for (int y = 0; y < half; ++y) {
            sums[y] += sums[y + half];
          }
        }
        to.Store(share, column, sums[0]);
      }
    }
  } else if (columns > 0) {
    LaunchColumns<C>(queue, rows, columns, terms, to);
  }
}

/// Where sums over all rows go.
template <class Body>
struct WholeSums {
  Body body;
  template <class C>
  __host__ __device__ void Store(std::int64_t, std::int64_t column, C sum) const {
    body.Store(column, sum);
  }
};
/// Where sums over shares go: rows, to be summed again.
template <class C>
struct PartialSums {
  std::int64_t columns;
  C* sums;
  template <class At>
  __host__ __device__ auto Term(std::int64_t share, At column) const {
    return Read(sums, column + share * columns);
  }
  /// Of a C, or of a Pack<C>.
  template <class At, class Value>
  __host__ __device__ void Store(std::int64_t share, At column, const Value& sum) const {
    Write(sum, sums, column + share * columns);
  }
};

/// Calls `body.Store(column, sum over rows of body.Term(row, column))`. Where the queue has a workspace, blocks share
/// the rows of few columns, as many as a large GPU has room for (132 processors, 2048 threads on each); the order of
/// additions depends on rows and columns alone. A sum's error is about (rows / kTile + 10) roundings.
template <class C, class Body>
void EachColumn(const Queue& queue, std::int64_t rows, std::int64_t columns, const Body& body) {
  constexpr std::int64_t kBlocks = 132 * 2048 / kThreads, kFewestRows = 4 * kTile;
  const std::int64_t room = queue.workspace == nullptr || columns == 0
                                ? 0
                                : queue.workspace_bytes / (static_cast<std::int64_t>(sizeof(C)) * columns);
  const std::int64_t shares = std::min({room, kBlocks / Tiles(columns), rows / kFewestRows});
  if (shares <= 1) {
    EachColumnOfShares<C>(queue, {rows, 1, rows}, columns, body, WholeSums<Body>{body});
    return;
  }
  const PartialSums<C> partials{columns, static_cast<C*>(queue.workspace)};
  EachColumnOfShares<C>(queue, {rows, shares, (rows + shares - 1) / shares}, columns, body, partials);
  EachColumnOfShares<C>(queue, {shares, 1, shares}, columns, partials, WholeSums<Body>{body});
}

}  // namespace tidemark::kernels::cuda
