// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_routing.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/numbers.h"

namespace tidemark::kernels::expert_routing_test {
namespace {

constexpr Routing kOp{.tokens = 2, .experts = 4, .per_token = 2};

struct Routed {
  Numbers weights, mask, scores, chosen;

  Routed(const Routing& op, const Numbers& logits) {
    const RoutingTypes types = RoutingOutputs(op, logits.type().dtype);
    weights = Numbers(types.weights);
    mask = Numbers(types.mask);
    scores = Numbers(types.scores);
    chosen = Numbers(types.chosen);
    ChooseExperts(op, logits, chosen);
    Weigh(op, logits);
  }
  void Weigh(const Routing& op, const Numbers& logits) { WeighExperts(op, logits, chosen, weights, mask, scores); }
};

// e^1 / (e^1 + e^3) = 0.119203, and of equal logits a half each.
TEST(ExpertRouting, ChoosesTheLargestLogitsAndWeighsThemAmongEachOther) {
  const double low = 1 / (1 + std::exp(2.)), high = 1 - low;
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
    const Routed routed(kOp, Numbers(dtype, {1, 0, 3, -1, 2, 2, -5, 2}));
    EXPECT_EQ(routed.chosen.integers(), (std::vector<std::int64_t>{2, 0, 0, 1})) << "of equal ones the first";
    EXPECT_EQ(routed.mask.bytes(), (std::vector<unsigned char>{1, 0, 1, 0, 1, 1, 0, 0}));
    EXPECT_EQ(routed.scores.type().dtype, StatisticsOf(dtype));
    const double statistics = 4 * UnitRoundoff(StatisticsOf(dtype));
    ExpectNear(routed.scores, {high, low, 0.5, 0.5}, statistics);
    ExpectNear(routed.weights, {low, 0, high, 0, 0.5, 0.5, 0, 0}, UnitRoundoff(dtype) + statistics);
  }
}

TEST(ExpertRouting, DoesNotOverflow) {
  const Routed routed(kOp, Numbers(DType::fp32, {1e4, 0, 0, 0, -1e4, -1e4, -1e4, -1e4}));
  EXPECT_EQ(routed.scores.values(), (std::vector<double>{1, 0, 0.5, 0.5}));
}

TEST(ExpertRouting, HandsNaNOn) {
  const Routed routed(kOp, Numbers(DType::fp32, {1, std::nan(""), 3, 2, 0, 1, 2, 3}));
  EXPECT_EQ(routed.chosen.integers(), (std::vector<std::int64_t>{1, 2, 3, 2}));
  EXPECT_TRUE(std::isnan(routed.weights[1]) && std::isnan(routed.scores[1]));
  EXPECT_FALSE(std::isnan(routed.weights[7]));
}

// Experts 0 and 1 are one group, 2 and 3 the other.
TEST(ExpertRouting, RoundRobinTakesAnExpertOfEachGroupInTurn) {
  const Routing op{.tokens = 3, .experts = 4, .per_token = 2};
  Numbers chosen(TensorType{DType::int64, 6});
  AssignRoundRobin(op, 2, chosen);
  EXPECT_EQ(chosen.integers(), (std::vector<std::int64_t>{0, 2, 1, 3, 0, 2}));
  AssignRoundRobin(op, 1, chosen);
  EXPECT_EQ(chosen.integers(), (std::vector<std::int64_t>{0, 1, 2, 3, 0, 1}));
}

TEST(ExpertRouting, WeighsWhatItIsToldToChoose) {
  const Numbers logits(DType::fp64, {1, 0, 3, -1, 2, 2, -5, 2});
  Routed routed(kOp, logits);
  routed.chosen = Numbers::Integers({1, 3, 0, 2});
  routed.Weigh(kOp, logits);
  ExpectNear(routed.scores,
             {1 / (1 + std::exp(-1.)), 1 / (1 + std::exp(1.)), 1 / (1 + std::exp(-7.)), 1 / (1 + std::exp(7.))}, 1e-15);
  EXPECT_EQ(routed.mask.bytes(), (std::vector<unsigned char>{0, 1, 0, 1, 1, 0, 1, 0}));
}

TEST(ExpertRouting, GradientIsThatOfFiniteDifferences) {
  for (const std::int64_t per_token : {1, 3, 5}) {
    const Routing op{.tokens = 4, .experts = 5, .per_token = per_token};
    Numbers logits = Numbers::Random({DType::fp64, 20}, 1);
    const Numbers dw = Numbers::Random(logits.type(), 2);
    Routed routed(op, logits);
    Numbers gradient(logits.type());
    RoutingBackward(op, dw, routed.scores, routed.chosen, gradient);
    ExpectGradient(
        [&] {
          const Routed again(op, logits);
          return Dot(dw, again.weights);
        },
        logits, gradient);
  }
}

// The gradient of all logits' softmax, by contrast, is none of the chosen ones alone.
TEST(ExpertRouting, HasNoGradientOfLogitsThatAreNotChosen) {
  const Routed routed(kOp, Numbers(DType::fp64, {1, 0, 3, -1, 2, 2, -5, 2}));
  Numbers gradient(TensorType{DType::fp64, 8});
  RoutingBackward(kOp, Numbers::Random({DType::fp64, 8}, 3), routed.scores, routed.chosen, gradient);
  for (const std::int64_t i : {1, 3, 6, 7}) {
    EXPECT_EQ(gradient[i], 0) << i;
  }
  EXPECT_NE(gradient[0], 0);
  EXPECT_NEAR(gradient[0] + gradient[2], 0, 1e-15) << "weights of a token are 1 together";
}

}  // namespace
}  // namespace tidemark::kernels::expert_routing_test
