// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention_cuda.h"
#include "kernels/attention_plan.cuh"
#include "kernels/ptx.cuh"

namespace tidemark::kernels::cuda {
namespace {

/// NaN where there is one.
template <class C>
__host__ __device__ C Larger(C a, C b) {
#ifdef __CUDA_ARCH__
  if constexpr (std::is_same_v<C, float>) {  // in one instruction
    return ptx::LargerOrNaN(a, b);
  }
#endif
  return a > b || a != a ? a : b;  // NOLINT(misc-redundant-expression): NaN
}

inline constexpr double kLn2 = 0.69314718055994531;

/// Algorithm 1. The online softmax is that of the CPU's, in powers of 2: after each tile of keys, the output and the
/// sum are those of all keys so far, in units of 2^(the largest score so far). Neither scores nor weights go through
/// memory where T is narrow, and there a block has two tiles of queries, so that what a warp loads of K and V serves 32
/// rows: by 16, these loads take longer than the products. kIsWhole: heads are not in parts; parts come one by one.
template <class T, int kWidth, bool kIsWhole>
struct ForwardBlock {
  using C = WideOf<T>;
  static constexpr int kResident = 2;
  using Scores = Sums<T, kSide>;
  using Results = Sums<T, kWidth>;
  static constexpr int kTall = kIsNarrow<T> && kIsWhole ? 2 : 1;
  using Heads = std::conditional_t<kIsNarrow<T>, HeadsOfTiles<T>, HeadResults<C>>;
  static constexpr C kNone = -std::numeric_limits<C>::infinity();

  /// What a block does: its share, whose keys are those of kv_head, up to the tile `last` of keys. It lies in memory,
  /// as registers are few.
  struct Work {
    Share share;
    int kv_head, last;
  };
  /// Of K and V there are two: one is copied while the other is worked on.
  struct Memory {
    Tile<T, kWidth> q[kTall], k[2], v[2];
    Room<T> weights;
    Work work;
  };
  /// Of each row of a thread: its largest score, and the sum of the thread's own exponentials.
  struct Rows {
    C largest[Scores::kRows], total[Scores::kRows];
  };

  Plan<T, kWidth> plan;
  HeadTiles<T> q, k, v;
  Heads output;
  Output<C> lse;
  C early = 1, late = 1;  ///< scales of a score, before and after the largest is known: see Run()

  __host__ __device__ void operator()(const TileTeam& team, Memory& memory, std::int64_t block) const {
    const Share share = plan.At(block, plan.op.shape.heads, true, kTall);
    const Work work{share, static_cast<int>(share.head / plan.Group()),
                    static_cast<int>(plan.LastKeys(share.tile * kTall, kTall))};
    team.Each(1, [&](int) { memory.work = work; });  // read behind the first Sync
    Results sums[kTall];
    Rows rows[kTall];
    TIDEMARK_UNROLL
    for (int tall = 0; tall < kTall; ++tall) {
      Clear(rows[tall], sums[tall]);
    }
    const int first_last = static_cast<int>(plan.LastKeys(share.tile * kTall));
    int tile = static_cast<int>(plan.FirstKeys(share.tile * kTall));
    if constexpr (kIsWhole) {
      LoadQueries(team, memory, work, 0);
      LoadKeys(team, memory, work, tile, 0, true);
    }
    if (first_last < 0) {
      team.Sync();  // no step of all tiles does
    }
    if constexpr (kTall > 1) {  // keys that only the first queries see, and at last those that only the last ones do
      for (const std::int64_t both = plan.FirstKeys(share.tile * kTall + 1); tile < both; ++tile) {
        Step<0, 1>(team, memory, tile, rows, sums);
      }
    }
    for (; tile <= first_last; ++tile) {
      Step<0, kTall>(team, memory, tile, rows, sums);
    }
    for (; kTall > 1 && tile <= memory.work.last; ++tile) {
      Step<kTall - 1, 1>(team, memory, tile, rows, sums);
    }
    TIDEMARK_UNROLL
    for (int tall = 0; tall < kTall; ++tall) {
      Store(team, memory, tall, rows[tall], sums[tall]);
    }
  }

  static __host__ __device__ void Clear(Rows& rows, Results& sums) {
    sums.Clear();
    TIDEMARK_UNROLL
    for (int i = 0; i < Scores::kRows; ++i) {
      rows.largest[i] = kNone;
      rows.total[i] = 0;
    }
  }

  __host__ __device__ void LoadQueries(const TileTeam& team, Memory& memory, const Work& work,
                                       std::int64_t part) const {
    TIDEMARK_UNROLL
    for (int tall = 0; tall < kTall; ++tall) {
      const Tokens queries = plan.TileAt(work.share.tile * kTall + tall);
      q.Load(team, plan.Token(work.share, queries), queries.count, work.share.head, part, memory.q[tall]);
    }
  }
  __host__ __device__ void LoadKeys(const TileTeam& team, Memory& memory, const Work& work, int tile, std::int64_t part,
                                    bool with_values) const {
    const Tokens keys = plan.TileAt(tile);
    const std::int64_t key = plan.Token(work.share, keys);
    k.Load(team, key, keys.count, work.kv_head, part, memory.k[tile % 2]);
    if (with_values) {
      v.Load(team, key, keys.count, work.kv_head, part, memory.v[tile % 2]);
    }
  }

  /// A tile of keys, for kCount tiles of queries from kFirst on.
  template <int kFirst, int kCount>
  __host__ __device__ void Step(const TileTeam& team, Memory& memory, int tile, Rows* rows, Results* sums) const {
    Scores scores[kCount];
    if constexpr (kIsWhole) {
      Multiply<kFirst, kCount>(team, memory, tile, scores);
    } else {
      MultiplyParts(team, memory, tile, scores[0]);
    }
    TIDEMARK_UNROLL
    for (int i = 0; i < kCount; ++i) {
      Mask<C> mask = plan.MaskOf(memory.work.share.tile * kTall + kFirst + i, tile);
      mask.scale = early;
      if (!mask.SeesAll() || early != 1) {
        scores[i].Each(team, [&](int row, int column, C& score) { score = mask.Score(row, column, score); });
      }
      Exponentials(scores[i], rows[kFirst + i], sums[kFirst + i]);
    }
    Results::template AddRoundedToAll<kCount>(team, memory.weights, sums + kFirst, scores, memory.v[tile % 2]);
  }

  /// This tile has been asked for; the next one is, if there is one.
  template <int kFirst, int kCount>
  __host__ __device__ void Multiply(const TileTeam& team, Memory& memory, int tile, Scores* scores) const {
    team.Sync();  // this tile is there for all, and all of the last one has been read
    if (tile < memory.work.last) {
      LoadKeys(team, memory, memory.work, tile + 1, 0, true);
    }
    TIDEMARK_UNROLL
    for (int i = 0; i < kCount; ++i) {
      scores[i].Clear();
    }
    Scores::template AddTransposedToAll<kCount>(team, scores, memory.q + kFirst, memory.k[tile % 2]);
  }
  __host__ __device__ void MultiplyParts(const TileTeam& team, Memory& memory, int tile, Scores& scores) const {
    scores.Clear();
    for (std::int64_t i = 0; i < plan.parts; ++i) {
      team.Sync();  // all that was in the tiles has been read
      LoadQueries(team, memory, memory.work, plan.Part(i, memory.work.share.part));
      LoadKeys(team, memory, memory.work, tile, plan.Part(i, memory.work.share.part), i == plan.parts - 1);
      team.Sync();
      scores.AddTransposed(team, memory.q[0], memory.k[tile % 2]);
    }
  }

  /// Turns the scores into exponentials.
  __host__ __device__ void Exponentials(Scores& scores, Rows& rows, Results& sums) const {
    C now[Scores::kRows], unit[Scores::kRows], shrink[Scores::kRows];
    TIDEMARK_UNROLL
    for (int i = 0; i < Scores::kRows; ++i) {
      now[i] = rows.largest[i];
    }
    scores.EachInRow([&](int i, C score) { now[i] = Larger(now[i], score); });
    Scores::Join(now, [](C a, C b) { return Larger(a, b); });
    TIDEMARK_UNROLL
    for (int i = 0; i < Scores::kRows; ++i) {
      const bool is_blind = now[i] == kNone;      // nothing to see yet, and no difference of infinities
      unit[i] = is_blind ? C(0) : now[i] * late;  // 2^-infinity is 0
      shrink[i] = is_blind ? C(1) : Power<T>((rows.largest[i] - now[i]) * late);
      rows.largest[i] = now[i];
      rows.total[i] *= shrink[i];
    }
    scores.EachInRow([&](int i, C& score) {
      score = Power<T>(score * late - unit[i]);
      rows.total[i] += score;
    });
    sums.EachInRow([&](int i, C& sum) { sum *= shrink[i]; });
  }

  __host__ __device__ void Store(const TileTeam& team, Memory& memory, int tall, Rows& rows, Results& sums) const {
    const Share share = memory.work.share;
    const Tokens queries = plan.TileAt(share.tile * kTall + tall);
    const std::int64_t token = plan.Token(share, queries);
    Scores::Join(rows.total, [](C a, C b) { return a + b; });
    C inverse[Scores::kRows];
    TIDEMARK_UNROLL
    for (int i = 0; i < Scores::kRows; ++i) {
      inverse[i] = rows.total[i] == 0 ? C(0) : 1 / rows.total[i];  // 0: of a query that sees nothing
    }
    sums.EachInRow([&](int i, C& sum) { sum *= inverse[i]; });
    if constexpr (kIsNarrow<T>) {  // by way of the queries' tile, of which a warp has read its strip only
      Tile<T, kWidth>& room = memory.q[tall];
      team.SyncStrip();
      sums.Each(team, [&](int row, int column, C& sum) { room.At(row, column) = Rounded<T>(sum); });
      team.SyncStrip();
      output.Store(team, token, queries.count, share.head, share.part * kWidth, room);
    } else {
      output.Store(team, token, queries.count, share.head, share.part * kWidth, sums, [](int, C sum) { return sum; });
    }
    if (share.part == 0) {
      Scores::EachRow(team, [&](int i, int row) {
        if (row < queries.count) {
          lse.Set((token + row) * plan.op.shape.heads + share.head,
                  rows.largest[i] * late * static_cast<C>(kLn2) + std::log(rows.total[i]));
        }
      });
    }
  }
};

template <class T, int kWidth, bool kIsWhole>
void Run(const Queue& queue, ForwardBlock<T, kWidth, kIsWhole> block) {
  // A product may be scaled where it becomes an exponent, by one fused multiply-add, after the largest is known: if
  // that leaves order and -infinity alone.
  const auto scale = static_cast<WideOf<T>>(static_cast<double>(block.plan.scale) * kLog2E);
  (scale > 0 ? block.late : block.early) = scale;
  EachBlock(queue, block.plan.Blocks(block.plan.op.shape.heads, block.kTall), block);
}

}  // namespace

void AttentionForward(const Attention& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                      const Tensor& output, const Tensor& lse, const Queue& queue) {
  const HeadShape& shape = op.shape;
  const AttentionTypes types = AttentionOutputs(op, q.type.dtype);
  TIDEMARK_CHECK(output.type == types.output && lse.type == types.lse && shape.heads % shape.kv_heads == 0);
  TIDEMARK_CHECK(op.window == 0 || (op.window > 0 && op.sight == Sight::causal));
  InTilesOf({q.type, k.type, v.type}, Longest(shape), [&]<class T, int kWidth>(TileKind<T, kWidth>) {
    const Plan<T, kWidth> plan(op, shape.value_size());
    const auto run = [&]<bool kIsWhole>(std::bool_constant<kIsWhole>) {
      Run(queue, ForwardBlock<T, kWidth, kIsWhole>{plan,
                                                   {q, QueryRows(shape, q.type), shape.head_size},
                                                   {k, KeyRows(shape, k.type), shape.head_size},
                                                   {v, ValueRows(shape, v.type), shape.value_size()},
                                                   {output, shape.heads, shape.value_size()},
                                                   lse});
    };
    if constexpr (kWidth == kWidest<T>) {
      plan.parts > 1 ? run(std::false_type()) : run(std::true_type());
    } else {
      run(std::true_type());
    }
  });
}

}  // namespace tidemark::kernels::cuda
