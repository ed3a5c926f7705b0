// SPDX-License-Identifier: Apache-2.0
#include "kernels/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/numbers.h"

namespace tidemark::kernels::optimizer_test {
namespace {

constexpr std::int64_t kElements = 2 * 1024 + 3;

/// Weights, moments and a gradient.
struct State {
  Numbers g, w, m, v;
  State(DType gradients, DType states)
      : g(Numbers::Random({gradients, kElements}, 1)),
        w(Numbers::Random({states, kElements}, 2)),
        m(Numbers::Random({states, kElements}, 3)),
        v(Numbers::Random({states, kElements}, 4)) {
    Numbers squares = v;
    for (std::int64_t i = 0; i < kElements; ++i) {
      squares.Set(i, v[i] * v[i]);
    }
    v = squares;
  }
};

TEST(AdamW, IsTheFormulaOfThePaper) {
  const AdamW op{.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.2, .step = 3};
  for (const DType gradients : {DType::fp64, DType::bf16}) {
    State state(gradients, DType::fp64);
    const State before = state;
    AdamWUpdate(op, state.g, state.w, state.m, state.v);
    std::vector<double> w, m, v;
    for (std::int64_t i = 0; i < kElements; ++i) {
      const double g = before.g[i];
      m.push_back(0.8 * before.m[i] + 0.2 * g);
      v.push_back(0.95 * before.v[i] + 0.05 * g * g);
      const double m_hat = m.back() / (1 - std::pow(0.8, 3)), v_hat = v.back() / (1 - std::pow(0.95, 3));
      w.push_back(before.w[i] - 0.1 * 0.2 * before.w[i] - 0.1 * m_hat / (std::sqrt(v_hat) + 1e-3));
    }
    ExpectNear(state.w, w, 1e-12);  // the smallest denominator is 1e-3: steps up to 200 in 2^-53
    ExpectNear(state.m, m, 1e-15);
    ExpectNear(state.v, v, 1e-15);
  }
}

TEST(AdamW, TheFirstStepGoesByTheLearningRateWhateverTheGradient) {
  // From zero moments m / (1 - beta1) = g and v / (1 - beta2) = g^2.
  const AdamW op{.lr = 0x1p-4, .eps = 0, .weight_decay = 0};
  Numbers w(DType::fp32, {1, 1}), m(DType::fp32, {0, 0}), v(DType::fp32, {0, 0});
  AdamWUpdate(op, Numbers(DType::bf16, {1e-3, -100}), w, m, v);
  ExpectNear(w, {1 - 0x1p-4, 1 + 0x1p-4}, 1e-6);
}

TEST(AdamW, SingleOperationsMakeTheSameUpdate) {
  const AdamW op{.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.2, .step = 3};
  for (const DType dtype : {DType::fp64, DType::fp32}) {
    State at_once(dtype, dtype), apart(dtype, dtype);
    AdamWUpdate(op, at_once.g, at_once.w, at_once.m, at_once.v);
    Numbers root(apart.v.type()), denominator(apart.v.type());
    AdamWMoments(op, apart.g, apart.w, apart.m, apart.v);
    AdamWRoot(apart.v, root);
    AdamWCorrectBias(op, root, denominator);
    AdamWCorrectBias(op, root, root);
    EXPECT_EQ(root.bytes(), denominator.bytes());
    AdamWAddEpsilon(op, denominator);
    AdamWApply(op, apart.m, denominator, apart.w);
    EXPECT_EQ(apart.m.bytes(), at_once.m.bytes());
    EXPECT_EQ(apart.v.bytes(), at_once.v.bytes());
    // Denominators may differ by a rounding; steps are up to 0.1 / 0.488 |m| / 1e-3.
    ExpectNear(apart.w, at_once.w.values(), 4 * UnitRoundoff(dtype) * 205);
  }
}

// Each operation by itself, from operands that no other one has made.
TEST(AdamW, MomentsMoveTowardsTheGradientAndWeightsDecay) {
  const AdamW op{.lr = 0.1, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-3, .weight_decay = 0.2, .step = 3};
  for (const DType gradients : {DType::fp64, DType::bf16}) {
    State state(gradients, DType::fp64);
    const State before = state;
    AdamWMoments(op, state.g, state.w, state.m, state.v);
    std::vector<double> w, m, v;
    for (std::int64_t i = 0; i < kElements; ++i) {
      const double g = before.g[i];
      w.push_back(0.98 * before.w[i]);
      m.push_back(0.8 * before.m[i] + 0.2 * g);
      v.push_back(0.95 * before.v[i] + 0.05 * g * g);
    }
    ExpectNear(state.w, w, 1e-15);
    ExpectNear(state.m, m, 1e-15);
    ExpectNear(state.v, v, 1e-15);
  }
}

TEST(AdamW, DenominatorsAreCorrectedRootsPlusEpsilon) {
  const AdamW op{.beta2 = 0.95, .eps = 1e-3, .step = 3};
  const State state(DType::fp64, DType::fp64);
  Numbers root(state.v.type()), quotient(state.v.type());
  AdamWRoot(state.v, root);
  AdamWCorrectBias(op, root, quotient);
  Numbers denominator = quotient;
  AdamWAddEpsilon(op, denominator);
  std::vector<double> roots, corrected, sums;
  for (std::int64_t i = 0; i < kElements; ++i) {
    roots.push_back(std::pow(state.v[i], 0.5));
    corrected.push_back(roots.back() / std::sqrt(1 - 0.95 * 0.95 * 0.95));
    sums.push_back(corrected.back() + 1e-3);
  }
  ExpectNear(root, roots, 1e-15);  // numbers up to 1, then 1 / 0.378
  ExpectNear(quotient, corrected, 2e-15);
  ExpectNear(denominator, sums, 2e-15);
}

TEST(AdamW, AnAppliedUpdateIsTheFirstMomentOverTheDenominator) {
  const AdamW op{.lr = 0.1, .beta1 = 0.8, .step = 3};
  for (const DType weights : {DType::fp64, DType::bf16}) {
    const Numbers m = Numbers::Random({DType::fp64, kElements}, 1), before = Numbers::Random({weights, kElements}, 2);
    Numbers denominator(DType::fp64, std::vector<double>(kElements, 0)), w = before;
    std::vector<double> expected;
    for (std::int64_t i = 0; i < kElements; ++i) {
      denominator.Set(i, 0.5 + static_cast<double>(i) / kElements);
      expected.push_back(before[i] - 0.1 / (1 - 0.8 * 0.8 * 0.8) * m[i] / denominator[i]);
    }
    AdamWApply(op, m, denominator, w);
    ExpectNear(w, expected, 2 * UnitRoundoff(weights) + 1e-15);  // weights up to 1.5, rounded once
  }
}

TEST(Sgd, MomentumAloneLeavesWeightsToTheSecondOperation) {
  Numbers w(DType::fp32, {10}), buffer(DType::fp32, {3});
  SgdMomentum({.lr = 0.5, .momentum = 0.5}, Numbers(DType::bf16, {4}), buffer);
  EXPECT_EQ(buffer[0], 5.5);
  SgdUpdate({.lr = 0.5}, buffer, w);
  EXPECT_EQ(w[0], 7.25);
}

TEST(Sgd, MomentumIsAddedUp) {
  const Sgd op{.lr = 0.5, .momentum = 0.5};
  Numbers w(DType::fp32, {10}), buffer(DType::fp32, {0});
  SgdMomentum(op, Numbers(DType::bf16, {4}), buffer);
  SgdUpdate(op, buffer, w);
  EXPECT_EQ(buffer[0], 4);
  EXPECT_EQ(w[0], 8);
  SgdMomentum(op, Numbers(DType::bf16, {4}), buffer);
  SgdUpdate(op, buffer, w);
  EXPECT_EQ(buffer[0], 6);
  EXPECT_EQ(w[0], 5);
  SgdUpdate(op, Numbers(DType::bf16, {4}), w);
  EXPECT_EQ(w[0], 3);
}

TEST(Optimizer, Bf16WeightsLoseUpdatesBelowHalfAStep) {
  Numbers w(DType::bf16, {1});
  SgdUpdate({.lr = 0x1p-10}, Numbers(DType::bf16, {1}), w);
  EXPECT_EQ(w[0], 1);  // 1 - 2^-10: the bf16 number below 1 is 1 - 2^-8, so that less than 2^-9 is lost
}

}  // namespace
}  // namespace tidemark::kernels::optimizer_test
