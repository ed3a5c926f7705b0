// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_cuda.h"
#include "kernels/attention_plan.cuh"

namespace tidemark::kernels::cuda {
namespace {

/// Of rows: what is multiplied by Q K^T, and by dO V^T.
template <class T, int kWidth>
struct Pair {
  Tile<T, kWidth> first, second;
};
/// Q and dO, or K and V, as left factors.
template <class T, int kWidth>
struct Factors {
  Factor<T, kWidth> first, second;

  __host__ __device__ void Keep(const TileTeam& team, const Pair<T, kWidth>& pair) {
    first.Keep(team, pair.first);
    second.Keep(team, pair.second);
  }
};

/// What both kinds of blocks of the backward pass hold: rows of one sort of tokens, which are the block's own, columns
/// of the other. Where heads are whole there are two of these: one is copied while the other is worked on.
template <class T, int kWidth, bool kIsWhole>
struct BackwardMemory {
  static constexpr int kTurns = kIsWhole ? 2 : 1;
  /// Of each query.
  struct Statistics {
    WideOf<T> lse[kSide], delta[kSide];
  };

  Pair<T, kWidth> own, others[kTurns];
  Room<T> weights;
  Statistics queries[kTurns];
  WideOf<T> half_sum[2 * kSide];
};

/// P by the saved denominator, and dS / scale = P (dP - delta). kIsMasked: the mask hides something.
template <class T, bool kIsMasked>
struct Softmax {
  using C = WideOf<T>;
  Mask<C> mask;
  C scale;  ///< of scores, for powers of 2

  __host__ __device__ C Weight(int query, int key, C score, C lse) const {
    const C seen = !kIsMasked || mask.Sees(query, key) ? score * scale : -std::numeric_limits<C>::infinity();
    return Power<T>(seen - lse * static_cast<C>(kLog2E));  // NaN where lse is, seen or not
  }
  __host__ __device__ C Gradient(int query, int key, C weight, C product, C delta) const {
    return !kIsMasked || mask.IsThere(query, key) ? weight * (product - delta) : C(0);
  }
};

/// Calls body(softmax) for a tile of queries and one of keys.
template <class T, int kWidth, class Body>
__host__ __device__ void WithSoftmax(const Plan<T, kWidth>& plan, std::int64_t queries, std::int64_t keys, Body body) {
  using C = WideOf<T>;
  const Mask<C> mask = plan.MaskOf(queries, keys);
  const C scale = plan.scale * static_cast<C>(kLog2E);
  if (mask.HidesNothing()) {
    body(Softmax<T, false>{mask, scale});
  } else {
    body(Softmax<T, true>{mask, scale});
  }
}

/// delta and dQ of a tile of queries. kIsWhole: heads are not in parts, and narrow; parts come one by one.
template <class T, int kWidth, bool kIsWhole>
struct QueriesBlock {
  using C = WideOf<T>;
  using Memory = BackwardMemory<T, kWidth, kIsWhole>;
  static constexpr int kResident = kIsWhole && kWidth <= 64 ? 3 : 2;

  Plan<T, kWidth> plan;
  HeadTiles<T> q, k, v, output, gradient;
  Input<C> lse;
  Output<C> delta;
  HeadResults<C> dq, dq_accumulator;

  __host__ __device__ void operator()(const TileTeam& team, Memory& memory, std::int64_t block) const {
    const Share share = plan.At(block, plan.op.shape.heads, true);
    const Tokens queries = plan.TileAt(share.tile);
    const std::int64_t token = plan.Token(share, queries);
    const std::int64_t first = plan.FirstKeys(share.tile), last = plan.LastKeys(share.tile);
    if constexpr (kIsWhole) {
      q.Load(team, token, queries.count, share.head, 0, memory.own.first);
      if (last >= 0) {
        LoadKeys(team, memory, share, first, 0);
      }
    }
    Delta(team, memory, share, memory.others[(first + 1) % Memory::kTurns].first);
    Factors<T, kWidth> own;
    if constexpr (kIsWhole) {
      own.Keep(team, memory.own);
    }
    Sums<T, kWidth> sums;
    sums.Clear();
    for (std::int64_t tile = first; tile <= last; ++tile) {
      Sums<T, kSide> scores, products;
      scores.Clear();
      products.Clear();
      const int turn = kIsWhole ? static_cast<int>(tile % 2) : 0;
      if constexpr (kIsWhole) {
        team.Sync();  // this tile is there for all, and all of the last one has been read
        if (tile < last) {
          LoadKeys(team, memory, share, tile + 1, 0);
        }
        scores.AddTransposed(team, own.first, memory.others[turn].first);
        products.AddTransposed(team, own.second, memory.others[turn].second);
      } else {
        MultiplyParts(team, memory, share, tile, tile == first, scores, products);
      }
      WithSoftmax(plan, share.tile, tile, [&](const auto& softmax) {
        scores.EachWith(team, products, [&](int row, int column, C& score, C product) {
          const C weight = softmax.Weight(row, column, score, memory.queries[0].lse[row]);
          score = softmax.Gradient(row, column, weight, product, memory.queries[0].delta[row]);
        });
      });
      sums.AddRounded(team, memory.weights, scores, memory.others[turn].first);
    }
    sums.Each(team, [&](int, int, C& sum) { sum *= plan.scale; });
    const auto store = [&](const HeadResults<C>& to) {
      to.Store(team, token, queries.count, share.head, share.part * kWidth, sums, [](int, C sum) { return sum; });
    };
    store(dq);
    store(dq_accumulator);
  }

  /// Leaves dO in its place. `outputs` is room for a tile.
  __host__ __device__ void Delta(const TileTeam& team, Memory& memory, const Share& share,
                                 Tile<T, kWidth>& outputs) const {
    const Tokens queries = plan.TileAt(share.tile);
    const std::int64_t token = plan.Token(share, queries);
    Tile<T, kWidth>& gradients = memory.own.second;
    team.Each(2 * kSide, [&](int i) { memory.half_sum[i] = 0; });
    for (std::int64_t part = 0; part < plan.parts; ++part) {
      team.Sync();
      output.Load(team, token, queries.count, share.head, part * kWidth, outputs);
      gradient.Load(team, token, queries.count, share.head, part * kWidth, gradients);
      team.Sync();
      team.Each(2 * kSide, [&](int i) {
        for (int column = i % 2; column < kWidth; column += 2) {
          memory.half_sum[i] += Widened(outputs.At(i / 2, column)) * Widened(gradients.At(i / 2, column));
        }
      });
    }
    team.SyncStrip();
    team.Each(2 * kSide, [&](int i) {
      const int row = i / 2;
      if (i % 2 == 0) {
        const std::int64_t at = (token + row) * plan.op.shape.heads + share.head;
        memory.queries[0].delta[row] = memory.half_sum[i] + memory.half_sum[i + 1];
        memory.queries[0].lse[row] = row < queries.count ? lse[at] : C(0);
        if (row < queries.count && share.part == 0) {
          delta.Set(at, memory.queries[0].delta[row]);
        }
      }
    });
    team.SyncStrip();
  }

  __host__ __device__ void LoadKeys(const TileTeam& team, Memory& memory, const Share& share, std::int64_t tile,
                                    std::int64_t part) const {
    const Tokens keys = plan.TileAt(tile);
    const std::int64_t key = plan.Token(share, keys), kv_head = share.head / plan.Group();
    Pair<T, kWidth>& to = memory.others[tile % Memory::kTurns];
    k.Load(team, key, keys.count, kv_head, part, to.first);
    v.Load(team, key, keys.count, kv_head, part, to.second);
  }

  /// The last part of K stays.
  __host__ __device__ void MultiplyParts(const TileTeam& team, Memory& memory, const Share& share, std::int64_t tile,
                                         bool is_first, Sums<T, kSide>& scores, Sums<T, kSide>& products) const {
    const Tokens queries = plan.TileAt(share.tile);
    const std::int64_t token = plan.Token(share, queries);
    for (std::int64_t i = 0; i < plan.parts; ++i) {
      const std::int64_t part = plan.Part(i, share.part);
      team.Sync();  // all that was in the tiles has been read
      if (is_first || plan.parts > 1) {
        q.Load(team, token, queries.count, share.head, part, memory.own.first);
        gradient.Load(team, token, queries.count, share.head, part, memory.own.second);
      }
      LoadKeys(team, memory, share, tile, part);
      team.Sync();
      scores.AddTransposed(team, memory.own.first, memory.others[0].first);
      products.AddTransposed(team, memory.own.second, memory.others[0].second);
    }
  }
};

/// dK and dV of a tile of keys: sums over the queries of all heads that share them. Scores have a row per key here.
template <class T, int kWidth, bool kIsWhole>
struct KeysBlock {
  using C = WideOf<T>;
  using Memory = BackwardMemory<T, kWidth, kIsWhole>;
  static constexpr int kResident = 2;

  /// A tile of queries of one of the heads.
  struct Place {
    std::int64_t head, tile;
  };

  Plan<T, kWidth> plan;
  HeadTiles<T> q, k, v, gradient;
  Input<C> lse, delta;
  const C *whole_lse, *whole_delta;
  HeadResults<C> dk, dv;

  __host__ __device__ void operator()(const TileTeam& team, Memory& memory, std::int64_t block) const {
    const Share share = plan.At(block, plan.op.shape.kv_heads, false);
    const Tokens keys = plan.TileAt(share.tile);
    const std::int64_t token = plan.Token(share, keys);
    const std::int64_t first = plan.FirstQueries(share.tile), end = plan.EndOfQueries(share.tile);
    Place now{share.head * plan.Group(), first};
    Factors<T, kWidth> own;
    const std::int64_t count = plan.Group() * (end - first);
    if constexpr (kIsWhole) {
      LoadOwn(team, memory, share, 0);
      if (count > 0) {
        LoadQueries(team, memory, share, now, 0, 0);
      }
      team.Sync();
      own.Keep(team, memory.own);
    }
    Sums<T, kWidth> dk_sums, dv_sums;
    dk_sums.Clear();
    dv_sums.Clear();
    for (std::int64_t i = 0; i < count; ++i) {
      const bool is_heads_last = now.tile + 1 == end;
      const Place next{now.head + (is_heads_last ? 1 : 0), is_heads_last ? first : now.tile + 1};
      const int turn = kIsWhole ? static_cast<int>(i % 2) : 0;
      const Pair<T, kWidth>& others = memory.others[turn];
      Sums<T, kSide> weights, products;  // from (Q K^T)^T, and (dO V^T)^T
      weights.Clear();
      products.Clear();
      if constexpr (kIsWhole) {
        team.Sync();
        if (i + 1 < count) {
          LoadQueries(team, memory, share, next, 0, 1 - turn);
        }
        weights.AddTransposed(team, own.first, others.first);
        products.AddTransposed(team, own.second, others.second);
      } else {
        MultiplyParts(team, memory, share, now, i == 0, weights, products);
      }
      const auto& queries = memory.queries[turn];
      WithSoftmax(plan, now.tile, share.tile, [&](const auto& softmax) {
        weights.Each(team, [&](int row, int column, C& weight) {
          weight = softmax.Weight(column, row, weight, queries.lse[column]);
        });
        dv_sums.AddRounded(team, memory.weights, weights, others.second);
        weights.EachWith(team, products, [&](int row, int column, C& weight, C product) {
          weight = softmax.Gradient(column, row, weight, product, queries.delta[column]);
        });
        dk_sums.AddRounded(team, memory.weights, weights, others.first);
      });
      now = next;
    }
    const std::int64_t part = share.part * kWidth;
    dk.Store(team, token, keys.count, share.head, part, dk_sums, [&](int, C sum) { return sum * plan.scale; });
    dv.Store(team, token, keys.count, share.head, part, dv_sums, [](int, C sum) { return sum; });
  }

  __host__ __device__ void LoadOwn(const TileTeam& team, Memory& memory, const Share& share, std::int64_t part) const {
    const Tokens keys = plan.TileAt(share.tile);
    const std::int64_t token = plan.Token(share, keys);
    k.Load(team, token, keys.count, share.head, part, memory.own.first);
    v.Load(team, token, keys.count, share.head, part, memory.own.second);
  }
  __host__ __device__ void LoadQueries(const TileTeam& team, Memory& memory, const Share& share, const Place& place,
                                       std::int64_t part, int turn) const {
    const Tokens queries = plan.TileAt(place.tile);
    const std::int64_t query = plan.Token(share, queries);
    q.Load(team, query, queries.count, place.head, part, memory.others[turn].first);
    gradient.Load(team, query, queries.count, place.head, part, memory.others[turn].second);
    auto& to = memory.queries[turn];
    team.Each(kSide, [&](int i) {
      const bool is_there = i < queries.count;
      const std::int64_t at = (query + i) * plan.op.shape.heads + place.head;
      if constexpr (kIsWhole) {
        CopyNumber(is_there, whole_lse + at, to.lse + i);
        CopyNumber(is_there, whole_delta + at, to.delta + i);
      } else {
        to.lse[i] = is_there ? lse[at] : C(0);
        to.delta[i] = is_there ? delta[at] : C(0);
      }
    });
  }

  __host__ __device__ void MultiplyParts(const TileTeam& team, Memory& memory, const Share& share, const Place& place,
                                         bool is_first, Sums<T, kSide>& scores, Sums<T, kSide>& products) const {
    for (std::int64_t i = 0; i < plan.parts; ++i) {
      const std::int64_t part = plan.Part(i, share.part);
      team.Sync();  // all that was in the tiles has been read
      if (is_first || plan.parts > 1) {
        LoadOwn(team, memory, share, part);
      }
      LoadQueries(team, memory, share, place, part, 0);
      team.Sync();
      scores.AddTransposed(team, memory.own.first, memory.others[0].first);
      products.AddTransposed(team, memory.own.second, memory.others[0].second);
    }
  }
};

}  // namespace

void AttentionBackward(const Attention& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                       const ConstTensor& output, const ConstTensor& lse, const ConstTensor& output_gradient,
                       const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dq_accumulator,
                       const Tensor& delta, const Queue& queue) {
  const HeadShape& shape = op.shape;
  const AttentionTypes saved = AttentionOutputs(op, q.type.dtype);
  const AttentionGradientTypes types = AttentionGradients(op, q.type.dtype);
  TIDEMARK_CHECK(output.type == saved.output && output_gradient.type == saved.output && lse.type == saved.lse);
  TIDEMARK_CHECK(dq.type == types.dq && dk.type == types.dk && dv.type == types.dv);
  TIDEMARK_CHECK(dq_accumulator.type == types.dq_accumulator && delta.type == types.delta);
  TIDEMARK_CHECK(shape.heads % shape.kv_heads == 0);
  TIDEMARK_CHECK(op.window == 0 || (op.window > 0 && op.sight == Sight::causal));
  InTilesOf({q.type, k.type, v.type}, Longest(shape), [&]<class T, int kWidth>(TileKind<T, kWidth>) {
    using C = WideOf<T>;
    const std::int64_t size = shape.head_size, of_values = shape.value_size();
    const Plan<T, kWidth> of_queries(op, size), of_keys(op, Longest(shape));
    const HeadRows dense{shape.heads * of_values, 0, of_values};
    const HeadTiles<T> queries(q, QueryRows(shape, q.type), size), keys(k, KeyRows(shape, k.type), size),
        values(v, ValueRows(shape, v.type), of_values), outputs(output, dense, of_values),
        gradients(output_gradient, dense, of_values);
    const auto run = [&]<bool kIsWhole>(std::bool_constant<kIsWhole>) {
      TIDEMARK_CHECK(!kIsWhole || (lse.type.dtype == kArithmetic<C> && delta.type.dtype == kArithmetic<C>));
      EachBlock(queue, of_queries.Blocks(shape.heads),
                QueriesBlock<T, kWidth, kIsWhole>{of_queries,
                                                  queries,
                                                  keys,
                                                  values,
                                                  outputs,
                                                  gradients,
                                                  lse,
                                                  delta,
                                                  {dq, shape.heads, size},
                                                  {dq_accumulator, shape.heads, size}});
      EachBlock(queue, of_keys.Blocks(shape.kv_heads),
                KeysBlock<T, kWidth, kIsWhole>{of_keys,
                                               queries,
                                               keys,
                                               values,
                                               gradients,
                                               lse,
                                               delta,
                                               static_cast<const C*>(lse.data),
                                               static_cast<const C*>(delta.data),
                                               {dk, shape.kv_heads, size},
                                               {dv, shape.kv_heads, of_values}});
    };
    if constexpr (!kIsNarrow<T>) {
      run(std::false_type());
    } else if constexpr (kWidth == kWidest<T>) {
      of_keys.parts > 1 ? run(std::false_type()) : run(std::true_type());
    } else {
      run(std::true_type());
    }
  });
}

}  // namespace tidemark::kernels::cuda
