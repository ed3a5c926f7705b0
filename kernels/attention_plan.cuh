// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/attention.h"
#include "kernels/head_tiles.cuh"
#include "kernels/ptx.cuh"
#include "kernels/tile_sum.cuh"

namespace tidemark::kernels::cuda {

// What the blocks of attention.cu and attention_backward.cu have in common.

inline constexpr double kLog2E = 1.4426950408889634;

/// 2^x, for weights of elements T: in one instruction where these are narrow, whose 0 below 2^-126 is nothing in a sum
/// of 1 or more.
template <class T, class C>
__host__ __device__ C Power(C x) {
#ifdef __CUDA_ARCH__
  if constexpr (kIsNarrow<T>) {
    return ptx::PowerOf2(x);
  }
#endif
  return std::exp2(x);
}

/// Tokens [begin, begin + count) of a sequence.
struct Tokens {
  std::int64_t begin, count;
};

/// A block's share of the work: a tile of tokens of a head, and which elements of the head are its results.
struct Share {
  int sequence, head, tile, part;
};

/// Which scores of a tile of queries by a tile of keys count.
template <class C>
struct Mask {
  int queries, keys;  ///< that there are
  int seen;           ///< how many of the keys, from the first on, any query sees
  int blind;          ///< how many queries, from the first on, see nothing
  int ahead;          ///< how many keys behind its own place a query sees
  int back;           ///< how many keys before its own place
  C scale;

  /// Whether each query sees all keys of a whole tile.
  __host__ __device__ bool SeesAll() const {
    return seen == kSide && blind <= 0 && ahead >= kSide - 1 && back >= kSide - 1;
  }
  /// Of a whole tile of queries, too.
  __host__ __device__ bool HidesNothing() const { return queries == kSide && SeesAll(); }

  __host__ __device__ bool IsThere(int query, int key) const { return query < queries && key < keys; }
  /// -infinity where a query does not see a key.
  __host__ __device__ C Score(int query, int key, C product) const {
    return IsInSight(query, key) ? product * scale : -std::numeric_limits<C>::infinity();
  }
  /// Without a branch, so that the exponentials of a thread's scores overlap: 2^-infinity is 0.
  __host__ __device__ bool Sees(int query, int key) const { return query < queries && IsInSight(query, key); }

 private:
  __host__ __device__ bool IsInSight(int query, int key) const {
    return key < seen && query >= blind && key <= query + ahead && key >= query - back;
  }
};

inline std::int64_t Longest(const HeadShape& shape) { return std::max(shape.head_size, shape.value_size()); }

/// What all blocks know. Heads longer than kWidth are worked on in parts of that many elements, as many as the longer
/// of a query's and a value's has: of the shorter one the last may be empty. Results of `size` elements have parts of
/// their own.
template <class T, int kWidth>
struct Plan {
  using C = WideOf<T>;

  Attention op;
  C scale;
  std::int64_t parts, results, tiles;

  Plan(const Attention& attention, std::int64_t size)
      : op(attention),
        scale(static_cast<C>(op.scale == 0 ? 1 / std::sqrt(static_cast<double>(op.shape.head_size)) : op.scale)),
        parts((Longest(op.shape) + kWidth - 1) / kWidth),
        results((size + kWidth - 1) / kWidth),
        tiles((op.shape.sequence + kSide - 1) / kSide) {}

  /// Of `tall` tiles each, on top of each other. Share::tile counts these.
  __host__ __device__ std::int64_t Towers(int tall) const { return (tiles + tall - 1) / tall; }
  std::int64_t Blocks(std::int64_t heads, int tall = 1) const {
    return op.shape.batch * heads * Towers(tall) * results;
  }
  /// Under a causal mask a tile has more to do the later its queries, the earlier its keys: `descending` begins with
  /// the last tile. The largest tiles of all heads come first, so that processors end at the same time.
  __host__ __device__ Share At(std::int64_t block, std::int64_t heads, bool descending, int tall = 1) const {
    const std::int64_t rows = op.shape.batch * heads, part = block % results, row = block / results % rows,
                       tile = block / results / rows;
    return {static_cast<int>(row / heads), static_cast<int>(row % heads),
            static_cast<int>(descending ? Towers(tall) - 1 - tile : tile), static_cast<int>(part)};
  }

  __host__ __device__ Tokens TileAt(std::int64_t tile) const {
    const std::int64_t begin = tile * kSide, rest = op.shape.sequence - begin;
    return {begin, rest < kSide ? rest : kSide};
  }
  /// Number of a token among all of the batch.
  __host__ __device__ std::int64_t Token(const Share& share, Tokens tokens) const {
    return share.sequence * op.shape.sequence + tokens.begin;
  }
  /// A part's first element in its head; of the parts, `last` comes last, where its operands stay in the tiles.
  __host__ __device__ std::int64_t Part(std::int64_t i, std::int64_t last) const {
    return (last + 1 + i) % parts * kWidth;
  }
  __host__ __device__ std::int64_t Group() const { return op.shape.heads / op.shape.kv_heads; }

  /// What Attention says of tokens, in tiles: of `tall` tiles of queries the first and the last tile of keys that one
  /// of them sees, -1 where there is no last; of a tile of keys the first of queries, `tiles` where there is none, and
  /// the end of these.
  __host__ __device__ std::int64_t FirstKeys(std::int64_t queries) const {
    return op.FirstSeenBy(queries * kSide) / kSide;
  }
  __host__ __device__ std::int64_t LastKeys(std::int64_t queries, int tall = 1) const {
    const std::int64_t end = (queries + tall) * kSide;
    const std::int64_t seen = op.SeenBy((end < op.shape.sequence ? end : op.shape.sequence) - 1);
    return seen == 0 ? -1 : (seen - 1) / kSide;
  }
  __host__ __device__ std::int64_t FirstQueries(std::int64_t keys) const {
    const std::int64_t first = op.FirstToSee(keys * kSide);
    return first < op.shape.sequence ? first / kSide : tiles;
  }
  __host__ __device__ std::int64_t EndOfQueries(std::int64_t keys) const {
    const std::int64_t end = op.EndOfSight(keys * kSide + TileAt(keys).count - 1);
    return (end + kSide - 1) / kSide;
  }

  /// Of tiles of keys from FirstKeys to LastKeys.
  __host__ __device__ Mask<C> MaskOf(std::int64_t queries, std::int64_t keys) const {
    // The last query sees most.
    const std::int64_t there = TileAt(keys).count, seen = op.SeenBy(op.shape.sequence - 1) - keys * kSide;
    return {static_cast<int>(TileAt(queries).count),
            static_cast<int>(there),
            static_cast<int>(seen < there ? seen : there),
            static_cast<int>(op.FirstToSee(0) - queries * kSide),
            op.sight == Sight::causal && queries == keys ? 0 : kSide,
            BackOf(queries, keys),
            scale};
  }

 private:
  /// More than a tile counts as no limit, and so does no window.
  __host__ __device__ int BackOf(std::int64_t queries, std::int64_t keys) const {
    const std::int64_t back = op.window - 1 - (queries - keys) * kSide;
    return op.window == 0 || back > kSide ? kSide : static_cast<int>(back);
  }
};

/// Where results of [tokens, heads, head_size] go.
template <class C>
struct HeadResults {
  Output<C> elements;
  std::int64_t heads, head_size;

  /// Writes the existing ones of a tile of sums, value(row, sum) of each.
  template <class Sums, class Value>
  __host__ __device__ void Store(const TileTeam& team, std::int64_t token, std::int64_t count, std::int64_t head,
                                 std::int64_t first, Sums& sums, Value value) const {
    const std::int64_t begin = (token * heads + head) * head_size + first, width = head_size - first;
    sums.Each(team, [&](int row, int column, C& sum) {
      if (row < count && column < width) {
        elements.Set(begin + row * heads * head_size + column, value(row, sum));
      }
    });
  }
};

/// A choice of tiles: their element and their width.
template <class T, int kWidth>
struct TileKind {};

/// Longer heads are worked on in parts. Of fp64, wider tiles do not fit into a block's memory.
template <class T>
inline constexpr int kWidest = std::is_same_v<T, double> ? 64 : 128;

template <class T, class Body>
void InTilesOfWidth(std::int64_t head_size, const Body& body) {
  if (head_size <= 48) {
    body(TileKind<T, 48>{});
  } else if (head_size <= 64) {
    body(TileKind<T, 64>{});
  } else {
    body(TileKind<T, kWidest<T>>{});
  }
}

/// Calls `body` with the tiles for operands of these types: narrow elements where all are of the same, and the
/// narrowest tile that holds a head, else parts of the widest.
template <class Body>
void InTilesOf(std::initializer_list<TensorType> types, std::int64_t head_size, const Body& body) {
  const auto are_all = [types](DType dtype) {
    return std::all_of(types.begin(), types.end(), [dtype](const TensorType& type) { return type.dtype == dtype; });
  };
  if (are_all(DType::bf16)) {
    InTilesOfWidth<Bf16>(head_size, body);
  } else if (are_all(DType::fp16)) {
    InTilesOfWidth<Fp16>(head_size, body);
  } else {
    InArithmeticOf(types, [&]<class C>(C) {
      if constexpr (std::is_same_v<C, double>) {
        body(TileKind<double, kWidest<double>>{});
      } else {
        InTilesOfWidth<float>(head_size, body);
      }
    });
  }
}

}  // namespace tidemark::kernels::cuda
