// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_cuda.h"
#include "kernels/attention_plan.cuh"

namespace tidemark::kernels::cuda {
namespace {

/// NaN where there is one.
template <class C>
__host__ __device__ C Larger(C a, C b) {
  return a > b || a != a ? a : b;  // NOLINT(misc-redundant-expression): NaN
}

/// Algorithm 1. The online softmax is that of the CPU's: after each tile of keys, the output and the sum are those of
/// all keys so far, in units of e^(the largest score so far).
template <class T, int kWidth>
struct ForwardBlock {
  using C = SumOfTile<T>;
  struct Memory {
    Tile<T, kWidth> q, k, v;
    Tile<C, kSide> scores;
    Tile<T, kSide> weights;
    C largest[kSide], sum[kSide], shrink[kSide], now[kSide];
    C half_largest[2 * kSide], half_sum[2 * kSide];
  };

  Plan<T, kWidth> plan;
  HeadTiles<T> q, k, v;
  HeadResults<C> output;
  Output<C> lse;

  __host__ __device__ void operator()(const TileTeam& team, Memory& memory, std::int64_t block) const {
    const Share share = plan.At(block, plan.shape.heads, true);
    const Tokens queries = plan.TileAt(share.tile);
    const std::int64_t token = plan.Token(share, queries), last = plan.causal ? share.tile : plan.tiles - 1;
    Sums<T, kWidth> sums;
    sums.Clear();
    team.Each(kSide, [&](int row) {
      memory.largest[row] = -std::numeric_limits<C>::infinity();
      memory.sum[row] = 0;
    });
    for (std::int64_t tile = 0; tile <= last; ++tile) {
      Scores(team, memory, share, tile);
      Exponentials(team, memory);
      sums.Each(team, [&](int row, int, C& sum) { sum *= memory.shrink[row]; });
      sums.Add(team, memory.weights, memory.v);
    }
    team.SyncStrip();
    output.Store(team, token, queries.count, share.head, share.part * kWidth, sums,
                 [&](int row, C sum) { return sum / memory.sum[row]; });
    team.Each(2 * kSide, [&](int i) {
      if (i % 2 == 0 && i / 2 < queries.count && share.part == 0) {
        lse.Set((token + i / 2) * plan.shape.heads + share.head, memory.largest[i / 2] + std::log(memory.sum[i / 2]));
      }
    });
  }

  __host__ __device__ void Scores(const TileTeam& team, Memory& memory, const Share& share, std::int64_t tile) const {
    const Tokens queries = plan.TileAt(share.tile), keys = plan.TileAt(tile);
    const std::int64_t token = plan.Token(share, queries), key = plan.Token(share, keys);
    const std::int64_t kv_head = share.head / plan.Group();
    Sums<T, kSide> scores;
    scores.Clear();
    for (std::int64_t i = 0; i < plan.parts; ++i) {
      const std::int64_t part = plan.Part(i, share.part);
      team.Sync();  // all that was in the tiles has been read
      if (tile == 0 || plan.parts > 1) {
        q.Load(team, token, queries.count, share.head, part, memory.q);
      }
      k.Load(team, key, keys.count, kv_head, part, memory.k);
      if (i == plan.parts - 1) {
        v.Load(team, key, keys.count, kv_head, part, memory.v);
      }
      team.Sync();
      scores.AddTransposed(team, memory.q, memory.k);
    }
    scores.Each(team, [&, mask = plan.MaskOf(share.tile, tile)](int row, int column, C& score) {
      memory.scores.At(row, column) = mask.Score(row, column, score);
    });
  }

  /// Two threads have a row, one the even columns, one the odd.
  __host__ __device__ void Exponentials(const TileTeam& team, Memory& memory) const {
    constexpr C kNone = -std::numeric_limits<C>::infinity();
    team.SyncStrip();
    team.Each(2 * kSide, [&](int i) {
      C largest = kNone;
      TIDEMARK_UNROLL
      for (int at = 0; at < kSide / 2; ++at) {
        largest = Larger(largest, memory.scores.At(i / 2, 2 * at + i % 2));
      }
      memory.half_largest[i] = largest;
    });
    team.SyncStrip();
    team.Each(2 * kSide, [&](int i) {
      const int row = i / 2;
      const C before = memory.largest[row];
      const C now = Larger(Larger(memory.half_largest[2 * row], memory.half_largest[2 * row + 1]), before);
      const bool is_blind = now == kNone;    // nothing to see yet, and no difference of infinities
      const C unit = is_blind ? C(0) : now;  // e^-infinity is 0
      C sum = 0;
      for (int at = 0; at < kSide / 2; at += 8) {
        C weights[8];  // all are read before any is written: exponentials overlap
        TIDEMARK_UNROLL
        for (int j = 0; j < 8; ++j) {
          weights[j] = std::exp(memory.scores.At(row, 2 * (at + j) + i % 2) - unit);
        }
        TIDEMARK_UNROLL
        for (int j = 0; j < 8; ++j) {
          memory.weights.At(row, 2 * (at + j) + i % 2) = Rounded<T>(weights[j]);
          sum += weights[j];
        }
      }
      memory.half_sum[i] = sum;
      if (i % 2 == 0) {
        memory.shrink[row] = is_blind ? C(1) : std::exp(before - now);
        memory.now[row] = now;
      }
    });
    team.SyncStrip();
    team.Each(2 * kSide, [&](int i) {
      if (i % 2 == 0) {
        const int row = i / 2;
        memory.sum[row] = memory.sum[row] * memory.shrink[row] + (memory.half_sum[i] + memory.half_sum[i + 1]);
        memory.largest[row] = memory.now[row];
      }
    });
  }
};

}  // namespace

void AttentionForward(const Attention& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                      const Tensor& output, const Tensor& lse, const Queue& queue) {
  const HeadShape& shape = op.shape;
  const AttentionTypes types = AttentionOutputs(op, q.type.dtype);
  TIDEMARK_CHECK(output.type == types.output && lse.type == types.lse && shape.heads % shape.kv_heads == 0);
  InTilesOf({q.type, k.type, v.type}, shape.head_size, [&]<class T, int kWidth>(TileKind<T, kWidth>) {
    const Plan<T, kWidth> plan(op);
    EachBlock(queue, plan.Blocks(shape.heads),
              ForwardBlock<T, kWidth>{plan,
                                      {q, QueryRows(shape, q.type), shape.head_size},
                                      {k, KeyRows(shape, k.type), shape.head_size},
                                      {v, ValueRows(shape, v.type), shape.head_size},
                                      {output, shape.heads, shape.head_size},
                                      lse});
  });
}

}  // namespace tidemark::kernels::cuda
