// SPDX-License-Identifier: Apache-2.0
#include "kernels/info_nce.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cross_entropy.h"
#include "tests/kernels/numbers.h"

namespace tidemark::kernels::info_nce_test {
namespace {

constexpr InfoNce kOp{.ranks = 2, .batch = 3, .targets = 2, .width = 5, .temperature = 0.5};
constexpr std::int64_t kQueries = 6, kPassages = 12;

/// The loss over all pairs by its definition.
double Naive(const Numbers& x, const Numbers& y) {
  double loss = 0;
  for (std::int64_t i = 0; i < kQueries; ++i) {
    double sum = 0, own = 0;
    for (std::int64_t j = 0; j < kPassages; ++j) {
      double product = 0;
      for (std::int64_t d = 0; d < kOp.width; ++d) {
        product += x[i * kOp.width + d] * y[j * kOp.width + d];
      }
      sum += std::exp(product / kOp.temperature);
      own = j == 2 * i ? product / kOp.temperature : own;
    }
    loss += (std::log(sum) - own) / kQueries;
  }
  return loss;
}

/// Forward and backward through the passes of a cross-entropy; x and y may be one tensor.
struct Contrastive {
  Numbers loss{CrossEntropyLoss(DType::fp64)}, d_logits{SimilarityOutput(kOp, DType::fp64)};

  Contrastive(const ConstTensor& x, const ConstTensor& y) {
    const CrossEntropy op{.rows = kQueries, .columns = kPassages};
    Numbers labels(InfoNceLabelsOutput(kOp)), logits(d_logits.type()), log_softmax(d_logits.type());
    Numbers d_log_softmax(d_logits.type());
    InfoNceLabels(kOp, labels);
    SimilarityForward(kOp, x, y, logits);
    LogSoftmaxForward(op, logits, log_softmax);
    NllLoss(op, log_softmax, labels, loss);
    NllBackward(op, labels, d_log_softmax);
    LogSoftmaxBackward(op, d_log_softmax, log_softmax, d_logits);
  }
};

TEST(InfoNce, IsTheDefinitionAndItsGradientThatOfFiniteDifferences) {
  Numbers x = Numbers::Random({DType::fp64, kQueries * 5}, 1), y = Numbers::Random({DType::fp64, kPassages * 5}, 2);
  const Contrastive result(x, y);
  EXPECT_NEAR(result.loss[0], Naive(x, y), 1e-14);
  Numbers dx(x.type()), dy(y.type());
  SimilarityBackward(kOp, result.d_logits, x, y, dx, dy);
  const auto loss = [&] { return Naive(x, y); };
  ExpectGradient(loss, x, dx);
  ExpectGradient(loss, y, dy);
}

TEST(InfoNce, OneEncodersRepresentationsLieRankByRank) {
  const Numbers x = Numbers::Random({DType::fp64, kQueries * 5}, 1),
                y = Numbers::Random({DType::fp64, kPassages * 5}, 2);
  const auto join = [](const Numbers& queries, const Numbers& passages) {
    Numbers both(TensorType{DType::fp64, (kQueries + kPassages) * 5});
    for (std::int64_t rank = 0; rank < 2; ++rank) {
      Copy(Slice(ConstTensor(queries), rank * 15, 15), Slice(Tensor(both), rank * 45, 15));
      Copy(Slice(ConstTensor(passages), rank * 30, 30), Slice(Tensor(both), rank * 45 + 15, 30));
    }
    return both;
  };
  const Contrastive apart(x, y);
  Numbers dx(x.type()), dy(y.type());
  SimilarityBackward(kOp, apart.d_logits, x, y, dx, dy);
  const Numbers both = join(x, y);
  const Contrastive together(both, both);
  EXPECT_NEAR(together.loss[0], apart.loss[0], 1e-15);
  Numbers d_both(both.type());
  SimilarityBackward(kOp, together.d_logits, both, both, d_both, d_both);
  ExpectNear(d_both, join(dx, dy).values(), 1e-15);
}

TEST(Surrogate, IsTheRepresentationAlongItsCachedGradient) {
  Numbers surrogate(TensorType{DType::fp32, 1});
  SurrogateForward(Numbers(DType::fp32, {1, 2, 3}), Numbers(DType::fp32, {0.5, -1, 4}), surrogate);
  EXPECT_EQ(surrogate[0], 10.5);
}

TEST(Pool, TakesTheFirstTokenAndGivesItsGradientBack) {
  const Pool op{.samples = 2, .sequence = 3, .width = 2};
  const Numbers tokens(DType::bf16, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});
  Numbers pooled(PoolOutput(op, DType::bf16)), back(PoolGradientOutput(op, DType::bf16));
  PoolForward(op, tokens, pooled);
  EXPECT_EQ(pooled.values(), (std::vector<double>{1, 2, 7, 8}));
  PoolBackward(op, pooled, back);
  EXPECT_EQ(back.values(), (std::vector<double>{1, 2, 0, 0, 0, 0, 7, 8, 0, 0, 0, 0}));
}

}  // namespace
}  // namespace tidemark::kernels::info_nce_test
