// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_cuda.h"
#include "kernels/attention_plan.cuh"

namespace tidemark::kernels::cuda {
namespace {

/// What both kinds of blocks of the backward pass hold: rows of one sort of tokens, columns of the other.
template <class T, int kWidth>
struct BackwardMemory {
  Tile<T, kWidth> q, k, v, gradient;
  Room<T> weights;
  WideOf<T> lse[kSide], delta[kSide], half_sum[2 * kSide];
};

/// delta and dQ of a tile of queries.
template <class T, int kWidth>
struct QueriesBlock {
  using C = WideOf<T>;
  using Memory = BackwardMemory<T, kWidth>;

  Plan<T, kWidth> plan;
  HeadTiles<T> q, k, v, output, gradient;
  Input<C> lse;
  Output<C> delta;
  HeadResults<C> dq, dq_accumulator;

  __host__ __device__ void operator()(const TileTeam& team, Memory& memory, std::int64_t block) const {
    const Share share = plan.At(block, plan.shape.heads, true);
    const Tokens queries = plan.TileAt(share.tile);
    const std::int64_t token = plan.Token(share, queries), last = plan.causal ? share.tile : plan.tiles - 1;
    Delta(team, memory, share);
    Sums<T, kWidth> sums;
    sums.Clear();
    for (std::int64_t tile = 0; tile <= last; ++tile) {
      Sums<T, kSide> gradients;
      ScoreGradients(team, memory, share, tile, gradients);
      sums.AddRounded(team, memory.weights, gradients, memory.k);
    }
    sums.Each(team, [&](int, int, C& sum) { sum *= plan.scale; });
    const auto store = [&](const HeadResults<C>& to) {
      to.Store(team, token, queries.count, share.head, share.part * kWidth, sums, [](int, C sum) { return sum; });
    };
    store(dq);
    store(dq_accumulator);
  }

  __host__ __device__ void Delta(const TileTeam& team, Memory& memory, const Share& share) const {
    const Tokens queries = plan.TileAt(share.tile);
    const std::int64_t token = plan.Token(share, queries);
    team.Each(2 * kSide, [&](int i) { memory.half_sum[i] = 0; });
    for (std::int64_t part = 0; part < plan.parts; ++part) {
      team.Sync();
      output.Load(team, token, queries.count, share.head, part * kWidth, memory.q);
      gradient.Load(team, token, queries.count, share.head, part * kWidth, memory.gradient);
      team.Sync();
      team.Each(2 * kSide, [&](int i) {
        for (int column = i % 2; column < kWidth; column += 2) {
          memory.half_sum[i] += Widened(memory.q.At(i / 2, column)) * Widened(memory.gradient.At(i / 2, column));
        }
      });
    }
    team.SyncStrip();
    team.Each(2 * kSide, [&](int i) {
      const int row = i / 2;
      if (i % 2 == 0) {
        const std::int64_t at = (token + row) * plan.shape.heads + share.head;
        memory.delta[row] = memory.half_sum[i] + memory.half_sum[i + 1];
        memory.lse[row] = row < queries.count ? lse[at] : C(0);
        if (row < queries.count && share.part == 0) {
          delta.Set(at, memory.delta[row]);
        }
      }
    });
  }

  /// dS / scale of a tile of keys, whose part of K stays.
  __host__ __device__ void ScoreGradients(const TileTeam& team, Memory& memory, const Share& share, std::int64_t tile,
                                          Sums<T, kSide>& scores) const {
    const Tokens queries = plan.TileAt(share.tile), keys = plan.TileAt(tile);
    const std::int64_t token = plan.Token(share, queries), key = plan.Token(share, keys);
    const std::int64_t kv_head = share.head / plan.Group();
    Sums<T, kSide> products;  // dO V^T; the scores are Q K^T
    scores.Clear();
    products.Clear();
    for (std::int64_t i = 0; i < plan.parts; ++i) {
      const std::int64_t part = plan.Part(i, share.part);
      team.Sync();  // all that was in the tiles has been read
      if (tile == 0 || plan.parts > 1) {
        q.Load(team, token, queries.count, share.head, part, memory.q);
        gradient.Load(team, token, queries.count, share.head, part, memory.gradient);
      }
      k.Load(team, key, keys.count, kv_head, part, memory.k);
      v.Load(team, key, keys.count, kv_head, part, memory.v);
      team.Sync();
      scores.AddTransposed(team, memory.q, memory.k);
      products.AddTransposed(team, memory.gradient, memory.v);
    }
    scores.EachWith(team, products,
                    [&, mask = plan.MaskOf(share.tile, tile)](int row, int column, C& score, C product) {
                      const C weight = mask.Weight(row, column, score, memory.lse[row]);
                      score = mask.Gradient(row, column, weight, product, memory.delta[row]);
                    });
  }
};

/// dK and dV of a tile of keys: sums over the queries of all heads that share them. Scores have a row per key here.
template <class T, int kWidth>
struct KeysBlock {
  using C = WideOf<T>;
  using Memory = BackwardMemory<T, kWidth>;

  Plan<T, kWidth> plan;
  HeadTiles<T> q, k, v, gradient;
  Input<C> lse, delta;
  HeadResults<C> dk, dv;

  __host__ __device__ void operator()(const TileTeam& team, Memory& memory, std::int64_t block) const {
    const Share share = plan.At(block, plan.shape.kv_heads, false);
    const Tokens keys = plan.TileAt(share.tile);
    const std::int64_t token = plan.Token(share, keys), first = plan.causal ? share.tile : 0;
    Sums<T, kWidth> dk_sums, dv_sums;
    dk_sums.Clear();
    dv_sums.Clear();
    const std::int64_t tiles = plan.tiles - first;
    for (std::int64_t i = 0; i < plan.Group() * tiles; ++i) {
      const std::int64_t head = share.head * plan.Group() + i / tiles, tile = first + i % tiles;
      const Mask<C> mask = plan.MaskOf(tile, share.tile);
      Sums<T, kSide> weights, products;  // from (Q K^T)^T, and (dO V^T)^T
      Products(team, memory, share, head, tile, i == 0, weights, products);
      weights.Each(
          team, [&](int row, int column, C& weight) { weight = mask.Weight(column, row, weight, memory.lse[column]); });
      dv_sums.AddRounded(team, memory.weights, weights, memory.gradient);
      weights.EachWith(team, products, [&](int row, int column, C& weight, C product) {
        weight = mask.Gradient(column, row, weight, product, memory.delta[column]);
      });
      dk_sums.AddRounded(team, memory.weights, weights, memory.q);
    }
    const std::int64_t part = share.part * kWidth;
    dk.Store(team, token, keys.count, share.head, part, dk_sums, [&](int, C sum) { return sum * plan.scale; });
    dv.Store(team, token, keys.count, share.head, part, dv_sums, [](int, C sum) { return sum; });
  }

  __host__ __device__ void Products(const TileTeam& team, Memory& memory, const Share& share, std::int64_t head,
                                    std::int64_t tile, bool is_first, Sums<T, kSide>& scores,
                                    Sums<T, kSide>& products) const {
    const Tokens keys = plan.TileAt(share.tile), queries = plan.TileAt(tile);
    const std::int64_t token = plan.Token(share, keys), query = plan.Token(share, queries);
    scores.Clear();
    products.Clear();
    for (std::int64_t i = 0; i < plan.parts; ++i) {
      const std::int64_t part = plan.Part(i, share.part);
      team.Sync();  // all that was in the tiles has been read
      if (is_first || plan.parts > 1) {
        k.Load(team, token, keys.count, share.head, part, memory.k);
        v.Load(team, token, keys.count, share.head, part, memory.v);
      }
      q.Load(team, query, queries.count, head, part, memory.q);
      gradient.Load(team, query, queries.count, head, part, memory.gradient);
      team.Each(kSide, [&](int column) {
        const std::int64_t at = (query + column) * plan.shape.heads + head;
        memory.lse[column] = column < queries.count ? lse[at] : C(0);
        memory.delta[column] = column < queries.count ? delta[at] : C(0);
      });
      team.Sync();
      scores.AddTransposed(team, memory.k, memory.q);
      products.AddTransposed(team, memory.v, memory.gradient);
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
  InTilesOf({q.type, k.type, v.type}, shape.head_size, [&]<class T, int kWidth>(TileKind<T, kWidth>) {
    const Plan<T, kWidth> plan(op);
    const std::int64_t size = shape.head_size;
    const HeadRows dense{shape.heads * size, 0};
    const HeadTiles<T> queries(q, QueryRows(shape, q.type), size), keys(k, KeyRows(shape, k.type), size),
        values(v, ValueRows(shape, v.type), size), outputs(output, dense, size),
        gradients(output_gradient, dense, size);
    EachBlock(queue, plan.Blocks(shape.heads),
              QueriesBlock<T, kWidth>{plan,
                                      queries,
                                      keys,
                                      values,
                                      outputs,
                                      gradients,
                                      lse,
                                      delta,
                                      {dq, shape.heads, size},
                                      {dq_accumulator, shape.heads, size}});
    EachBlock(queue, plan.Blocks(shape.kv_heads),
              KeysBlock<T, kWidth>{plan,
                                   queries,
                                   keys,
                                   values,
                                   gradients,
                                   lse,
                                   delta,
                                   {dk, shape.kv_heads, size},
                                   {dv, shape.kv_heads, size}});
  });
}

}  // namespace tidemark::kernels::cuda
