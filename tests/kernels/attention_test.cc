// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/attention_merge.h"
#include "tests/kernels/numbers.h"

namespace tidemark::kernels::attention_test {
namespace {

/// An attention with all its operands.
struct Case {
  Attention op;
  Numbers q, k, v, output, lse;

  Case(const Attention& attention, DType dtype)
      : op(attention),
        q(Numbers::Random({dtype, op.shape.query_elements()}, 1)),
        k(Numbers::Random({dtype, op.shape.key_elements()}, 2)),
        v(Numbers::Random({dtype, op.shape.value_elements()}, 3)),
        output(AttentionOutputs(op, dtype).output),
        lse(AttentionOutputs(op, dtype).lse) {}

  void Forward() { AttentionForward(op, q, k, v, output, lse); }
};

struct Gradients {
  Numbers dq, dk, dv, dq_accumulator, delta;

  Gradients(const Case& c, const Numbers& d_output) {
    const AttentionGradientTypes types = AttentionGradients(c.op, c.q.type().dtype);
    dq = Numbers(types.dq);
    dk = Numbers(types.dk);
    dv = Numbers(types.dv);
    dq_accumulator = Numbers(types.dq_accumulator);
    delta = Numbers(types.delta);
    AttentionBackward(c.op, c.q, c.k, c.v, c.output, c.lse, d_output, dq, dk, dv, dq_accumulator, delta);
  }
};

/// Softmax of all scores at once, straight from the definition.
struct Naive {
  std::vector<double> output, lse;

  explicit Naive(const Case& c) {
    const HeadShape& s = c.op.shape;
    const std::vector<double> q = c.q.values(), k = c.k.values(), v = c.v.values();
    output.resize(static_cast<std::size_t>(s.output_elements()));
    for (std::int64_t t = 0; t < s.tokens(); ++t) {
      for (std::int64_t h = 0; h < s.heads; ++h) {
        const std::int64_t first = t / s.sequence * s.sequence;
        const std::int64_t seen = c.op.sight == Sight::causal ? t - first + 1 : s.sequence;
        const std::int64_t unseen = c.op.window > 0 ? std::max<std::int64_t>(0, seen - c.op.window) : 0;
        const auto key = [&](std::int64_t j) {
          return static_cast<std::size_t>((first + j) * s.kv_heads + h / (s.heads / s.kv_heads));
        };
        const auto size = static_cast<std::size_t>(s.head_size), of_value = static_cast<std::size_t>(s.value_size());
        const auto query = static_cast<std::size_t>((t * s.heads + h) * s.head_size);
        std::vector<double> weights;
        double sum = 0;
        for (std::int64_t j = unseen; j < seen; ++j) {
          double score = 0;
          for (std::size_t d = 0; d < size; ++d) {
            score += q[query + d] * k[key(j) * size + d];
          }
          weights.push_back(std::exp(score / std::sqrt(static_cast<double>(s.head_size))));
          sum += weights.back();
        }
        lse.push_back(std::log(sum));
        for (std::int64_t j = unseen; j < seen; ++j) {
          for (std::size_t d = 0; d < of_value; ++d) {
            output[query / size * of_value + d] +=
                weights[static_cast<std::size_t>(j - unseen)] / sum * v[key(j) * of_value + d];
          }
        }
      }
    }
  }
};

const Attention kShapes[] = {
    {{.batch = 1, .sequence = 1, .heads = 1, .kv_heads = 1, .head_size = 2}},
    {{.batch = 2, .sequence = 5, .heads = 4, .kv_heads = 2, .head_size = 6}},
    {{.batch = 2, .sequence = 5, .heads = 2, .kv_heads = 1, .head_size = 3}, Sight::all},
    {{.batch = 1, .sequence = 64, .heads = 1, .kv_heads = 1, .head_size = 8}},
    {{.batch = 1, .sequence = 131, .heads = 2, .kv_heads = 1, .head_size = 10}},  // two tiles and three tokens
    {{.batch = 1, .sequence = 131, .heads = 2, .kv_heads = 2, .head_size = 10}, Sight::all},
    {{.batch = 2, .sequence = 5, .heads = 4, .kv_heads = 2, .head_size = 6, .value_head_size = 3}},
    {{.batch = 1, .sequence = 131, .heads = 2, .kv_heads = 2, .head_size = 4, .value_head_size = 9}},
    // Windows of a token, of less than a tile, a token less and more than a tile, and of all tokens.
    {.shape = {.batch = 2, .sequence = 5, .heads = 2, .kv_heads = 1, .head_size = 3}, .window = 1},
    {.shape = {.batch = 2, .sequence = 5, .heads = 4, .kv_heads = 2, .head_size = 6}, .window = 3},
    {.shape = {.batch = 1, .sequence = 200, .heads = 2, .kv_heads = 1, .head_size = 10}, .window = 63},
    {.shape = {.batch = 1, .sequence = 200, .heads = 1, .kv_heads = 1, .head_size = 4}, .window = 65},
    {.shape = {.batch = 1, .sequence = 131, .heads = 1, .kv_heads = 1, .head_size = 4}, .window = 131},
};

TEST(Attention, IsTheDefinitionForTilesOfEverySize) {
  for (const Attention& op : kShapes) {
    for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
      Case c(op, dtype);
      c.Forward();
      const Naive naive(c);
      // Weighted means of values up to 1: the weights' relative error is that of an exponential whose argument is a sum
      // of head_size products, and of a sum over the sequence.
      const double compute = dtype == DType::fp64 ? 0x1p-53 : 0x1p-24;
      const double rounding = static_cast<double>(2 * op.shape.head_size + op.shape.sequence + 20) * compute * 2;
      ExpectNear(c.output, naive.output,
                 [&](std::size_t i) { return rounding + UnitRoundoff(dtype) * std::abs(naive.output[i]) * 1.01; });
      ExpectNear(c.lse, naive.lse, 4 * rounding);
    }
  }
}

TEST(Attention, GradientsAreThoseOfFiniteDifferences) {
  for (const Attention& op : kShapes) {
    Case c(op, DType::fp64);
    const Numbers d_output = Numbers::Random(c.output.type(), 4);
    const auto loss = [&] {
      c.Forward();
      return Dot(d_output, c.output);
    };
    loss();
    const Gradients gradients(c, d_output);
    if (op.shape.sequence > 100) {  // slow by differences: the narrow ones are checked against these below
      continue;
    }
    ExpectGradient(loss, c.q, gradients.dq);
    ExpectGradient(loss, c.k, gradients.dk);
    ExpectGradient(loss, c.v, gradients.dv);
  }
}

TEST(Attention, GradientsOverSeveralTilesAreThoseOfTheDefinition) {
  // Directional derivatives along random directions, of the naive formula, at a size where a difference per element
  // would be slow.
  for (const Attention& op : {kShapes[4], kShapes[5], kShapes[7], kShapes[10], kShapes[11], kShapes[12]}) {
    Case c(op, DType::fp64);
    c.Forward();
    const Numbers d_output = Numbers::Random(c.output.type(), 4);
    const Gradients gradients(c, d_output);
    for (const auto& input :
         {std::pair(&Case::q, &gradients.dq), std::pair(&Case::k, &gradients.dk), std::pair(&Case::v, &gradients.dv)}) {
      const auto x = input.first;
      const Numbers* gradient = input.second;
      const Numbers direction = Numbers::Random(gradient->type(), 5);
      const auto along = [&](double step) {
        Case moved = c;
        Accumulate(direction, moved.*x, step);
        const Naive naive(moved);
        double loss = 0;
        for (std::int64_t i = 0; i < d_output.type().elements; ++i) {
          loss += d_output[i] * naive.output[static_cast<std::size_t>(i)];
        }
        return loss;
      };
      constexpr double kStep = 1e-5;
      const double expected = (along(kStep) - along(-kStep)) / (2 * kStep);
      // As in ExpectGradient, for a direction whose derivatives are sums of a few thousand terms.
      EXPECT_NEAR(Dot(*gradient, direction), expected, 1e-6 * (1 + std::abs(expected)));
    }
  }
}

TEST(Attention, NarrowGradientsAreThoseOfFp64WithinTheirRoundings) {
  const Attention op = kShapes[4];
  for (const DType dtype : {DType::fp32, DType::bf16}) {
    Case narrow(op, dtype), wide(op, DType::fp64);
    wide.q = narrow.q.As(DType::fp64);
    wide.k = narrow.k.As(DType::fp64);
    wide.v = narrow.v.As(DType::fp64);
    narrow.Forward();
    wide.Forward();
    const Numbers d_output = Numbers::Random(narrow.output.type(), 4);
    const Gradients result(narrow, d_output), truth(wide, d_output.As(DType::fp64));
    for (const auto part : {&Gradients::dq, &Gradients::dk, &Gradients::dv}) {
      const std::vector<double> expected = (truth.*part).values();
      // Sums over up to 2 x 131 tokens; delta is made of the rounded output, so that each dS is off by a rounding of
      // the sum of head_size terms |dO O|, times weights that add up to 1 a row and up to the harmonic sum a column.
      ExpectNear(result.*part, expected, [&](std::size_t i) {
        return UnitRoundoff(dtype) * (std::abs(expected[i]) + 2 * 10 * 0.33) + 300 * 0x1p-24 * 10;
      });
    }
  }
}

/// Of an attention whose operands lie otherwise than in `given`, which has its results.
void ExpectTheSameBits(Case& c, const Case& given) {
  const Numbers d_output = Numbers::Random(given.output.type(), 4);
  const Gradients expected(given, d_output);
  c.output = Numbers(given.output.type());
  c.Forward();
  EXPECT_EQ(c.output.bytes(), given.output.bytes());
  EXPECT_EQ(c.lse.bytes(), given.lse.bytes());
  const Gradients result(c, d_output);
  EXPECT_EQ(result.dq.bytes(), expected.dq.bytes());
  EXPECT_EQ(result.dk.bytes(), expected.dk.bytes());
  EXPECT_EQ(result.dv.bytes(), expected.dv.bytes());
}

TEST(Attention, ReadsAPackedProjectionWhereItIsGivenOne) {
  const Attention op = kShapes[1];
  const HeadShape& s = op.shape;
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
    Case c(op, dtype);
    c.Forward();
    const Case given = c;
    Numbers packed(TensorType{dtype, s.packed_elements()});
    const std::int64_t q_width = s.heads * s.head_size, k_width = s.kv_heads * s.head_size;
    for (std::int64_t t = 0; t < s.tokens(); ++t) {
      const std::int64_t row = t * (q_width + 2 * k_width);
      Copy(Slice(ConstTensor(c.q), t * q_width, q_width), Slice(Tensor(packed), row, q_width));
      Copy(Slice(ConstTensor(c.k), t * k_width, k_width), Slice(Tensor(packed), row + q_width, k_width));
      Copy(Slice(ConstTensor(c.v), t * k_width, k_width), Slice(Tensor(packed), row + q_width + k_width, k_width));
    }
    c.q = c.k = c.v = packed;
    ExpectTheSameBits(c, given);
  }
}

// As wkv_b of multi-latent attention writes them: each head of v behind the head's own part of its key.
TEST(Attention, ReadsValuesThatHaveSomethingInFrontOfEachHead) {
  for (const Attention& op : {kShapes[6], kShapes[7], kShapes[1]}) {
    const std::int64_t size = op.shape.value_size(), in_front = 5;
    for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
      Case c(op, dtype);
      c.Forward();
      const Case given = c;
      const std::int64_t heads = op.shape.tokens() * op.shape.kv_heads;
      Numbers apart = Numbers::Random({dtype, heads * (in_front + size)}, 5);
      for (std::int64_t head = 0; head < heads; ++head) {
        Copy(Slice(ConstTensor(c.v), head * size, size),
             Slice(Tensor(apart), head * (in_front + size) + in_front, size));
      }
      c.v = apart;
      c.op.shape.before_value = in_front;
      ExpectTheSameBits(c, given);
    }
  }
}

TEST(Attention, LargeScoresDoNotOverflowAndNaNReachesWhoSeesIt) {
  Case c({{.batch = 1, .sequence = 70, .heads = 1, .kv_heads = 1, .head_size = 2}}, DType::fp32);
  Scale(1e4, c.q);
  Scale(1e4, c.k);
  c.Forward();
  for (const double value : c.output.values()) {
    ASSERT_TRUE(std::isfinite(value));
  }
  c.v.Set(66 * 2, std::numeric_limits<double>::quiet_NaN());
  c.Forward();
  for (std::int64_t t = 0; t < 70; ++t) {
    // A weight of 0 times NaN is NaN: all tokens of the tile that holds the value see it, or those behind it.
    if (t >= 66) {
      ASSERT_TRUE(std::isnan(c.output[t * 2])) << t;
    } else if (t < 64) {
      ASSERT_TRUE(std::isfinite(c.output[t * 2])) << t;
    }
  }
}

/// Of `whole`, [tokens, width], those of a rank of a ring of `ranks`: its stretch from the front, then the one as far
/// from the back.
Numbers PartOf(const Numbers& whole, std::int64_t width, std::int64_t ranks, std::int64_t rank) {
  const std::int64_t count = whole.type().elements / (2 * ranks);
  Numbers part(TensorType{whole.type().dtype, 2 * count});
  TIDEMARK_CHECK(count % width == 0);
  Copy(Slice(ConstTensor(whole), rank * count, count), Slice(Tensor(part), 0, count));
  Copy(Slice(ConstTensor(whole), (2 * ranks - 1 - rank) * count, count), Slice(Tensor(part), count, count));
  return part;
}

TEST(Attention, PartsOfACausalSequenceInARingMakeTheWhole) {
  for (const std::int64_t ranks : {2, 3}) {
    const std::int64_t stretch = 35;  // no multiple of a tile
    const Attention op{{.batch = 1, .sequence = 2 * ranks * stretch, .heads = 2, .kv_heads = 1, .head_size = 4}};
    const std::int64_t q_width = 8, k_width = 4;
    Case whole(op, DType::fp64);
    whole.Forward();
    const Numbers d_output = Numbers::Random(whole.output.type(), 4);
    const Gradients expected(whole, d_output);
    std::vector<Numbers> dk, dv;  // by the rank whose keys they are of
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      for (std::vector<Numbers>* sums : {&dk, &dv}) {
        Zero(sums->emplace_back(TensorType{DType::fp64, 2 * stretch * k_width}));
      }
    }
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      std::vector<Case> steps;
      for (std::int64_t step = 0; step < ranks; ++step) {
        const std::int64_t from = (rank + ranks - step) % ranks;
        Attention part = op;
        part.shape.sequence = 2 * stretch;
        part.sight = step == 0     ? Sight::causal
                     : from < rank ? Sight::first_half_of_keys
                                   : Sight::second_half_of_queries;
        Case& c = steps.emplace_back(part, DType::fp64);
        c.q = PartOf(whole.q, q_width, ranks, rank);
        c.k = PartOf(whole.k, k_width, ranks, from);
        c.v = PartOf(whole.v, k_width, ranks, from);
        c.Forward();
      }
      Case& own = steps.front();
      for (std::int64_t step = 1; step < ranks; ++step) {
        const Case& part = steps[static_cast<std::size_t>(step)];
        MergeAttention({own.lse.type().elements, op.shape.head_size}, part.output, part.lse, own.output, own.lse);
      }
      ExpectNear(own.output, PartOf(whole.output, q_width, ranks, rank).values(), 1e-13);
      ExpectNear(own.lse, PartOf(whole.lse, 2, ranks, rank).values(), 1e-13);
      Numbers dq(own.q.type());
      Zero(dq);
      for (std::int64_t step = 0; step < ranks; ++step) {
        Case& c = steps[static_cast<std::size_t>(step)];
        c.output = own.output;
        c.lse = own.lse;
        const Gradients part(c, PartOf(d_output, q_width, ranks, rank));
        const auto from = static_cast<std::size_t>((rank + ranks - step) % ranks);
        Accumulate(part.dq, dq);
        Accumulate(part.dk, dk[from]);
        Accumulate(part.dv, dv[from]);
      }
      ExpectNear(dq, PartOf(expected.dq, q_width, ranks, rank).values(), 1e-12);
    }
    for (std::int64_t rank = 0; rank < ranks; ++rank) {
      ExpectNear(dk[static_cast<std::size_t>(rank)], PartOf(expected.dk, k_width, ranks, rank).values(), 1e-12);
      ExpectNear(dv[static_cast<std::size_t>(rank)], PartOf(expected.dv, k_width, ranks, rank).values(), 1e-12);
    }
  }
}

TEST(Attention, AQueryThatSeesNothingAddsNothing) {
  Case c({{.batch = 2, .sequence = 6, .heads = 1, .kv_heads = 1, .head_size = 2}, Sight::second_half_of_queries},
         DType::fp32);
  c.Forward();
  for (const std::int64_t blind : {0, 1, 2, 6, 7, 8}) {
    EXPECT_EQ(c.lse[blind], -std::numeric_limits<double>::infinity());
    EXPECT_EQ(c.output[2 * blind], 0);
  }
  Numbers output(DType::fp32, std::vector<double>(24, 0.5)), lse(DType::fp32, std::vector<double>(12, 1));
  MergeAttention({12, 2}, c.output, c.lse, output, lse);
  EXPECT_EQ(output[2], 0.5);
  EXPECT_EQ(lse[1], 1);
  EXPECT_NE(output[6], 0.5);
}

}  // namespace
}  // namespace tidemark::kernels::attention_test
