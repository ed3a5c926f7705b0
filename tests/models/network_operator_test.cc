// SPDX-License-Identifier: Apache-2.0
#include "models/network/operator.h"

#include <gtest/gtest.h>

namespace tidemark::network_operator_test {
namespace {

TEST(OperatorCosts, CountAMatrixProductAsMultiplyAdds) {
  Gemm gemm;
  gemm.m = 3, gemm.n = 5, gemm.k = 7;
  EXPECT_EQ(FlopsOf(gemm), Flops(2 * 3 * 5 * 7));
  EXPECT_EQ(BytesMovedBy(gemm), Bytes(2 * (3 * 7 + 7 * 5 + 3 * 5)));
  gemm.accumulate = true;
  gemm.output = DType::fp32;  // read and written
  EXPECT_EQ(BytesMovedBy(gemm), Bytes(2 * (3 * 7 + 7 * 5) + 2 * 4 * 3 * 5));
  gemm.batch = 2;
  EXPECT_EQ(FlopsOf(gemm), Flops(4 * 3 * 5 * 7));
}

TEST(OperatorCosts, CountHalfTheSquareOfACausalAttention) {
  Attention attention;
  attention.batch = 2, attention.heads = 4, attention.kv_heads = 2, attention.sequence = 8, attention.head_size = 16;
  attention.causal = false;
  const std::int64_t product = 2 * 2 * 4 * 8 * 8 * 16;  // one of scores or output
  EXPECT_EQ(FlopsOf(attention), Flops(2 * product));
  attention.causal = true;
  EXPECT_EQ(FlopsOf(attention), Flops(product));
  // Five products instead of two: scores again, dV, dP, dQ, dK.
  attention.backward = true;
  EXPECT_EQ(FlopsOf(attention), Flops(product * 5 / 2));
}

TEST(OperatorCosts, CountWhatAWindowLeaves) {
  // Pairs of a token with itself count half, as without a window, and so do those that are as far apart as it is long.
  for (const std::int64_t window : {1, 3, 8, 19, 20}) {
    Attention op{.batch = 2, .heads = 3, .kv_heads = 3, .sequence = 20, .head_size = 4};
    op.window = window;
    std::int64_t halves = 0;
    for (std::int64_t query = 0; query < op.sequence; ++query) {
      for (std::int64_t key = 0; key <= query; ++key) {
        const std::int64_t apart = query - key;
        halves += apart == 0 || apart == window ? 1 : apart < window ? 2 : 0;
      }
    }
    EXPECT_EQ(FlopsOf(op), Flops(2 * 2 * 3 * 4 * halves)) << window;  // two products
    op.backward = true;
    EXPECT_EQ(FlopsOf(op), Flops(5 * 2 * 3 * 4 * halves)) << window;
    EXPECT_EQ(BytesMovedBy(op), BytesMovedBy(op.Full())) << window;
  }
}

TEST(OperatorCosts, OfWindowsInSomeLayersAreTheMeanOfAll) {
  Attention op{.batch = 1, .heads = 1, .kv_heads = 1, .sequence = 20, .head_size = 7};
  op.window = 3;
  op.windowed_layers = 5;
  op.full_layers = 2;
  const Flops all = FlopsOf(op.Windowed()) * 5 + FlopsOf(op.Full()) * 2;
  EXPECT_EQ(FlopsOf(op), all / 7);
  EXPECT_GT(FlopsOf(op.Full()), FlopsOf(op));
  // Where the sum of all layers is more than 2^63.
  op.sequence = 1 << 24;
  op.heads = 1 << 10;
  op.windowed_layers = op.full_layers = 1 << 13;
  EXPECT_EQ(FlopsOf(op), FlopsOf(op.Windowed()) + Flops((FlopsOf(op.Full()) - FlopsOf(op.Windowed())).count() / 2));
}

TEST(OperatorCosts, MoveEachTensorOfAnAttentionOnce) {
  Attention attention;
  attention.batch = 1, attention.heads = 4, attention.kv_heads = 2, attention.sequence = 8, attention.head_size = 16;
  const std::int64_t q = 2 * 8 * 4 * 16;
  const std::int64_t k = 2 * 8 * 2 * 16;
  const std::int64_t lse = 4 * 8 * 4;
  EXPECT_EQ(BytesMovedBy(attention), Bytes(2 * q + 2 * k + lse));
  attention.backward = true;  // q, out, dout, dq; k, v, dk, dv
  EXPECT_EQ(BytesMovedBy(attention), Bytes(4 * q + 4 * k + lse));
}

TEST(OperatorCosts, MoveTheMatrixOfANormInAndOut) {
  Norm norm;
  norm.rows = 10, norm.width = 8;
  EXPECT_EQ(BytesMovedBy(norm), Bytes(2 * 2 * 80 + 2 * 8 + 4 * 10));
  norm.layer_norm = true;  // also a bias and a mean
  EXPECT_EQ(BytesMovedBy(norm), Bytes(2 * 2 * 80 + 2 * 2 * 8 + 2 * 4 * 10));
  norm.backward = true;  // x, dy, dx; weights and their gradients
  EXPECT_EQ(BytesMovedBy(norm), Bytes(3 * 2 * 80 + 2 * 2 * 2 * 8 + 2 * 4 * 10));
}

TEST(OperatorCosts, TakeWhatIsStatedForStreamingOperators) {
  EXPECT_EQ(BytesMovedBy(Pointwise{10, 60, 3}), Bytes(60));
  EXPECT_EQ(FlopsOf(Pointwise{10, 60, 3}), Flops(30));
  EXPECT_EQ(FlopsOf(OptimizerUpdate{10, 280, 12}), Flops(120));
  EXPECT_EQ(BytesMovedBy(Rope{10, false, DType::bf16}), Bytes(40));
  EXPECT_EQ(FlopsOf(Embedding{4, 8, 100, false, DType::bf16}), Flops(0));
  EXPECT_EQ(BytesMovedBy(Embedding{4, 8, 100, false, DType::bf16}), Bytes(4 * 8 + 2 * 2 * 4 * 8));
  EXPECT_EQ(FlopsOf(Tabulated{0, 5, 6, DType::bf16}), Flops(5));
}

TEST(OperatorCosts, CountOneProductOfRepresentationsForwardsAndTwoBackwards) {
  InfoNce nce{.rows = 3, .columns = 5, .width = 7};
  EXPECT_EQ(FlopsOf(nce), Flops(2 * 3 * 5 * 7));
  EXPECT_EQ(BytesMovedBy(nce), Bytes(4 * (3 * 7 + 5 * 7 + 3 * 5)));
  nce.backward = true;  // the logits' gradient, X, Y; dX, dY
  EXPECT_EQ(FlopsOf(nce), Flops(4 * 3 * 5 * 7));
  EXPECT_EQ(BytesMovedBy(nce), Bytes(4 * (3 * 5 + 2 * (3 * 7 + 5 * 7))));
}

TEST(OperatorCosts, HaveANameForEachOperator) {
  EXPECT_EQ(Name(Operator(Gemm{})), "gemm");
  EXPECT_EQ(Name(Operator(CrossEntropy{})), "cross_entropy");
  EXPECT_EQ(Name(Operator(Tabulated{})), "tabulated");
}

}  // namespace
}  // namespace tidemark::network_operator_test
