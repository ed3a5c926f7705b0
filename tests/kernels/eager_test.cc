// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "kernels/eager_attention.h"
#include "kernels/eager_norm.h"
#include "tests/kernels/numbers.h"

namespace tidemark::kernels::eager_test {
namespace {

constexpr Norm kNorm{.rows = 4, .width = 37, .eps = 1e-3};

/// RMSNorm in single operations, forward and backward, all in one dtype.
struct EagerNorm {
  Numbers y, rstd, dx, dw;

  EagerNorm(const Numbers& x, const Numbers& w, const Numbers& dy) {
    const TensorType matrix = x.type(), rows{x.type().dtype, kNorm.rows};
    Numbers squares(matrix), normalised(matrix), d_normalised(matrix), products(matrix), through(matrix),
        weight(matrix);
    Numbers d_rstd(rows);
    y = dx = Numbers(matrix);
    rstd = Numbers(rows);
    dw = Numbers(w.type());
    NormProduct(kNorm, x, x, squares);
    NormReciprocalRoot(kNorm, squares, rstd);
    NormScaleRows(kNorm, x, rstd, normalised);
    NormScaleColumns(kNorm, normalised, w, y);

    NormProduct(kNorm, dy, normalised, weight);
    ColumnSums(kNorm, weight, dw);
    NormScaleColumns(kNorm, dy, w, d_normalised);
    NormScaleRows(kNorm, d_normalised, rstd, dx);
    NormProduct(kNorm, d_normalised, x, products);
    NormRstdGradient(kNorm, products, rstd, d_rstd);
    NormScaleRows(kNorm, x, d_rstd, through);
    const ConstTensor addends[] = {dx, through};
    Add(addends, dx);
  }
};

TEST(EagerNorm, IsTheFusedOneForwardAndBackward) {
  for (const DType dtype : {DType::fp64, DType::fp32}) {
    const Numbers x = Numbers::Random({dtype, 4 * 37}, 1), w = Numbers::Random({dtype, 37}, 2);
    const Numbers dy = Numbers::Random(x.type(), 3);
    const EagerNorm eager(x, w, dy);
    const NormTypes types = NormOutputs(kNorm, dtype);
    Numbers y(types.output), rstd(types.rstd), dx(x.type()), dw(w.type());
    NormForward(kNorm, x, w, std::nullopt, y, rstd, std::nullopt);
    NormBackward(kNorm, dy, x, rstd, std::nullopt, w, dx, Tensor(dw), std::nullopt);
    const double bound = 100 * UnitRoundoff(dtype);  // values of order 1, sums of 37
    ExpectNear(eager.y, y.values(), bound);
    ExpectNear(eager.rstd, rstd.values(), bound);
    ExpectNear(eager.dx, dx.values(), bound);
    ExpectNear(eager.dw, dw.values(), bound);
  }
}

TEST(EagerNorm, OfNoRowsColumnsSumToZero) {
  const Numbers none(TensorType{DType::fp32, 0});
  Numbers sums = Numbers::Random({DType::fp32, 5}, 1);
  const std::vector<double> before = sums.values();
  ColumnSums({.rows = 0, .width = 5, .accumulate = true}, none, sums);
  EXPECT_EQ(sums.values(), before);
  ColumnSums({.rows = 0, .width = 5}, none, sums);
  EXPECT_EQ(sums.values(), std::vector<double>(5, 0));
}

/// Attention in single operations, as a framework runs it, with dropout of probability p.
struct EagerAttention {
  HeadShape s;
  bool causal;
  std::int64_t window;
  Dropout dropout;
  Numbers q, k, v, output, softmax, weights, mask, k_all, v_all;

  void Forward() {
    const DType dtype = q.type().dtype;
    k_all = v_all = Numbers(RepeatedOutput(s, dtype));
    RepeatHeads(s, HeadPart::key, k, k_all);
    RepeatHeads(s, HeadPart::value, v, v_all);
    Numbers scores(ScoresOutput(s, dtype)), divided = scores, masked = scores;
    softmax = weights = scores;
    AttentionScores(s, q, k_all, scores);
    Copy(scores, divided, 1 / std::sqrt(static_cast<double>(s.head_size)));
    masked = divided;
    if (causal) {
      masked = Numbers(scores.type());
      CausalMask(s, window, divided, masked);
    }
    Softmax(s.batch * s.heads * s.sequence, s.sequence, masked, softmax);
    mask = Numbers(DropoutOutputs(scores.type()).mask);
    DropoutForward(dropout, softmax, weights, mask);
    Numbers context(RepeatedOutput(s, dtype));
    output = Numbers(RepeatedOutput(s, dtype));
    AttentionContext(s, weights, v_all, context);
    HeadsToTokens(s, context, output);
  }

  struct Gradients {
    Numbers dq, dk, dv;
  };
  Gradients Backward(const Numbers& d_output) const {
    Numbers d_weights(softmax.type()), d_softmax(softmax.type()), d_scores(softmax.type()), d_products(softmax.type());
    Numbers dk_all(k_all.type()), dv_all(k_all.type());
    Gradients gradients{Numbers(q.type()), Numbers(k.type()), Numbers(v.type())};
    WeightsGradient(s, d_output, v_all, d_weights);
    ValueGradient(s, weights, d_output, dv_all);
    DropoutBackward(dropout, d_weights, mask, d_softmax);
    SoftmaxGradient(s.batch * s.heads * s.sequence, s.sequence, d_softmax, softmax, d_scores);
    Copy(d_scores, d_products, 1 / std::sqrt(static_cast<double>(s.head_size)));
    QueryGradient(s, d_products, k_all, gradients.dq);
    KeyGradient(s, d_products, q, dk_all);
    SumRepeatedHeads(s, dk_all, gradients.dk);
    SumRepeatedHeads(s, dv_all, gradients.dv);
    return gradients;
  }
};

EagerAttention MakeEager(DType dtype, bool causal, double p, std::int64_t window = 0) {
  const HeadShape s{.batch = 2, .sequence = 5, .heads = 4, .kv_heads = 2, .head_size = 3};
  return {s,
          causal,
          window,
          {.p = p, .seed = 1, .offset = 2},
          Numbers::Random({dtype, s.query_elements()}, 1),
          Numbers::Random({dtype, s.key_elements()}, 2),
          Numbers::Random({dtype, s.key_elements()}, 3),
          {},
          {},
          {},
          {},
          {},
          {}};
}

TEST(EagerAttention, WithoutDropoutIsTheMemoryLinearOneForwardAndBackward) {
  for (const DType dtype : {DType::fp64, DType::fp32}) {
    for (const auto& [causal, window] :
         {std::pair(true, 0), std::pair(false, 0), std::pair(true, 1), std::pair(true, 3), std::pair(true, 5)}) {
      EagerAttention eager = MakeEager(dtype, causal, 0, window);
      eager.Forward();
      const Numbers d_output = Numbers::Random(eager.output.type(), 4);
      const EagerAttention::Gradients gradients = eager.Backward(d_output);
      const Attention op{.shape = eager.s, .sight = causal ? Sight::causal : Sight::all, .window = window};
      Numbers output(AttentionOutputs(op, dtype).output), lse(AttentionOutputs(op, dtype).lse);
      AttentionForward(op, eager.q, eager.k, eager.v, output, lse);
      const AttentionGradientTypes types = AttentionGradients(op, dtype);
      Numbers dq(types.dq), dk(types.dk), dv(types.dv), accumulator(types.dq_accumulator), delta(types.delta);
      AttentionBackward(op, eager.q, eager.k, eager.v, output, lse, d_output, dq, dk, dv, accumulator, delta);
      const double bound = 50 * UnitRoundoff(dtype);  // values of order 1, sums of at most 10
      ExpectNear(eager.output, output.values(), bound);
      ExpectNear(gradients.dq, dq.values(), bound);
      ExpectNear(gradients.dk, dk.values(), bound);
      ExpectNear(gradients.dv, dv.values(), bound);
    }
  }
}

TEST(EagerAttention, GradientsWithDropoutAreThoseOfFiniteDifferences) {
  EagerAttention eager = MakeEager(DType::fp64, true, 0.3);
  const Numbers d_output = Numbers::Random({DType::fp64, eager.s.query_elements()}, 4);
  const auto loss = [&] {
    eager.Forward();
    return Dot(d_output, eager.output);
  };
  loss();
  const EagerAttention::Gradients gradients = eager.Backward(d_output);
  ExpectGradient(loss, eager.q, gradients.dq);
  ExpectGradient(loss, eager.k, gradients.dk);
  ExpectGradient(loss, eager.v, gradients.dv);
}

TEST(EagerAttention, ReadsAPackedProjectionWithAsManyKeysAsQueries) {
  const HeadShape s{.batch = 1, .sequence = 3, .heads = 2, .kv_heads = 2, .head_size = 2};
  const Numbers packed = Numbers::Random({DType::fp64, s.packed_elements()}, 1);
  Numbers q(TensorType{DType::fp64, 12}), k(q.type()), v(q.type());
  for (std::int64_t t = 0; t < 3; ++t) {
    Copy(Slice(ConstTensor(packed), t * 12, 4), Slice(Tensor(q), t * 4, 4));
    Copy(Slice(ConstTensor(packed), t * 12 + 4, 4), Slice(Tensor(k), t * 4, 4));
    Copy(Slice(ConstTensor(packed), t * 12 + 8, 4), Slice(Tensor(v), t * 4, 4));
  }
  Numbers scores(ScoresOutput(s, DType::fp64)), scores2(scores.type());
  AttentionScores(s, q, k, scores);
  AttentionScores(s, packed, packed, scores2);
  EXPECT_EQ(scores.bytes(), scores2.bytes());
  Numbers context(RepeatedOutput(s, DType::fp64)), context2(context.type());
  AttentionContext(s, scores, v, context);
  AttentionContext(s, scores, packed, context2);
  EXPECT_EQ(context.bytes(), context2.bytes());
}

TEST(EagerAttention, RepeatsKeysOutOfAPackedProjection) {
  const HeadShape s{.batch = 1, .sequence = 1, .heads = 2, .kv_heads = 1, .head_size = 1};
  const Numbers packed(DType::fp32, {1, 2, 3, 4});  // two queries, a key, a value
  Numbers keys(RepeatedOutput(s, DType::fp32)), values(keys.type());
  RepeatHeads(s, HeadPart::key, packed, keys);
  RepeatHeads(s, HeadPart::value, packed, values);
  EXPECT_EQ(keys.values(), (std::vector<double>{3, 3}));
  EXPECT_EQ(values.values(), (std::vector<double>{4, 4}));
}

}  // namespace
}  // namespace tidemark::kernels::eager_test
