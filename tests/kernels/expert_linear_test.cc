// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_linear.h"

#include <gtest/gtest.h>

#include "tests/kernels/numbers.h"

namespace tidemark::kernels::expert_linear_test {
namespace {

constexpr ExpertLinear kOp{.experts = 3, .rows = 5, .in = 2, .out = 3};

const std::vector<std::int64_t> kCounts = {2, 0, 3};

struct Case {
  Numbers x, w, y, dy;
  explicit Case(DType dtype)
      : x(Numbers::Random({dtype, kOp.rows * kOp.in}, 1)),
        w(Numbers::Random(ExpertLinearWeightGradientOutput(kOp, dtype), 2)),
        y(ExpertLinearOutput(kOp, dtype)),
        dy(Numbers::Random(y.type(), 3)) {}
};

TEST(ExpertLinear, TakesEachRowThroughItsExpert) {
  const ExpertLinear op{.experts = 2, .rows = 3, .in = 2, .out = 1};
  Numbers y(ExpertLinearOutput(op, DType::bf16));
  ExpertLinearForward(op, Numbers(DType::bf16, {1, 2, 3, 4, 5, 6}), std::vector<std::int64_t>{1, 2},
                      Numbers(DType::bf16, {1, 1, 10, 100}), y);
  EXPECT_EQ(y.values(), (std::vector<double>{3, 430, 648})) << "650 is 648 in bf16";
}

TEST(ExpertLinear, IsALinearLayerOfEachExpert) {
  Case c(DType::fp64);
  ExpertLinearForward(kOp, c.x, kCounts, c.w, c.y);
  Numbers expected(c.y.type());
  for (const auto& [expert, row, rows] : {std::tuple{0, 0, 2}, std::tuple{2, 2, 3}}) {
    const Tensor to = Slice(Tensor(expected), row * kOp.out, rows * kOp.out);
    LinearForward({.rows = rows, .in = kOp.in, .out = kOp.out}, Slice(ConstTensor(c.x), row * kOp.in, rows * kOp.in),
                  Slice(ConstTensor(c.w), expert * kOp.out * kOp.in, kOp.out * kOp.in), std::nullopt, {&to, 1});
  }
  EXPECT_EQ(c.y.bytes(), expected.bytes());
}

TEST(ExpertLinear, GradientsAreThoseOfFiniteDifferences) {
  Case c(DType::fp64);
  Numbers dx(c.x.type()), dw(c.w.type());
  ExpertLinearInputGradient(kOp, c.dy, kCounts, c.w, dx);
  ExpertLinearWeightGradient(kOp, c.x, c.dy, kCounts, dw);
  const auto loss = [&] {
    ExpertLinearForward(kOp, c.x, kCounts, c.w, c.y);
    return Dot(c.dy, c.y);
  };
  ExpectGradient(loss, c.x, dx);
  ExpectGradient(loss, c.w, dw);
}

TEST(ExpertLinear, WeightGradientsOfAnExpertWithoutRowsAreZeroOrWhatTheyWere) {
  const Case c(DType::fp32);
  Numbers dw(c.w.type()), sum(DType::fp32, std::vector<double>(18, 7));
  ExpertLinearWeightGradient(kOp, c.x, c.dy, kCounts, dw);
  ExpertLinear added = kOp;
  added.accumulate = true;
  ExpertLinearWeightGradient(added, c.x, c.dy, kCounts, sum);
  for (std::int64_t i = 0; i < 18; ++i) {
    EXPECT_NEAR(sum[i], 7 + dw[i], 1e-6) << i;
    if (i / 6 == 1) {
      EXPECT_EQ(dw[i], 0) << i;
    }
  }
}

TEST(ExpertLinear, CountsDecide) {
  Case c(DType::fp64);
  Numbers other(c.y.type());
  ExpertLinearForward(kOp, c.x, kCounts, c.w, c.y);
  ExpertLinearForward(kOp, c.x, std::vector<std::int64_t>{2, 1, 2}, c.w, other);
  EXPECT_EQ(other[0], c.y[0]);
  EXPECT_NE(other[6], c.y[6]) << "the third row is another expert's";
}

}  // namespace
}  // namespace tidemark::kernels::expert_linear_test
