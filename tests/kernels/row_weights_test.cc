// SPDX-License-Identifier: Apache-2.0
#include "kernels/row_weights.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/kernels/numbers.h"

namespace tidemark::kernels::row_weights_test {
namespace {

constexpr Glu kOp{.rows = 3, .width = 5};

struct Case {
  Numbers packed, weights, y, dy;
  explicit Case(DType dtype, DType of_weights)
      : packed(Numbers::Random({dtype, 2 * kOp.rows * kOp.width}, 1)),
        weights(Numbers::Random({of_weights, kOp.rows}, 2)),
        y(GluOutput(kOp, dtype)),
        dy(Numbers::Random(y.type(), 3)) {}
};

TEST(WeightedGlu, IsTheDefinitionInEveryDType) {
  for (const auto& [dtype, of_weights] : {std::pair{DType::fp64, DType::fp64}, std::pair{DType::fp32, DType::fp32},
                                          std::pair{DType::bf16, DType::bf16}, std::pair{DType::bf16, DType::fp32}}) {
    Case c(dtype, of_weights);
    WeightedGluForward(kOp, c.packed, c.weights, c.y);
    std::vector<double> expected;
    for (std::int64_t row = 0; row < kOp.rows; ++row) {
      for (std::int64_t i = 0; i < kOp.width; ++i) {
        const double x = c.packed[row * 2 * kOp.width + i], u = c.packed[row * 2 * kOp.width + kOp.width + i];
        expected.push_back(x / (1 + std::exp(-x)) * u * c.weights[row]);
      }
    }
    const double compute = dtype == DType::fp64 ? 0x1p-53 : 0x1p-24;
    ExpectNear(c.y, expected, [&, type = dtype](std::size_t i) {
      return (UnitRoundoff(type) + 10 * compute) * 1.01 * std::abs(expected[i]);
    });
  }
}

TEST(WeightedGlu, GradientsAreThoseOfFiniteDifferences) {
  Case c(DType::fp64, DType::fp64);
  Numbers d_packed(c.packed.type()), d_weights(c.weights.type());
  WeightedGluBackward(kOp, c.packed, c.weights, c.dy, d_packed, d_weights);
  const auto loss = [&] {
    WeightedGluForward(kOp, c.packed, c.weights, c.y);
    return Dot(c.dy, c.y);
  };
  ExpectGradient(loss, c.packed, d_packed);
  ExpectGradient(loss, c.weights, d_weights);
}

TEST(WeightedGlu, SingleOperationsMakeTheSameForwardAndBackward) {
  Case c(DType::fp64, DType::fp64);
  Numbers d_packed(c.packed.type()), d_weights(c.weights.type());
  WeightedGluForward(kOp, c.packed, c.weights, c.y);
  WeightedGluBackward(kOp, c.packed, c.weights, c.dy, d_packed, d_weights);
  Numbers activated(c.y.type()), y(c.y.type()), d_activated(c.y.type()), products(c.y.type());
  Numbers d_packed2(c.packed.type()), d_weights2(c.weights.type());
  GluForward(kOp, c.packed, c.packed, activated);
  WeighRows(activated, c.weights, y);
  WeighRows(c.dy, c.weights, d_activated);
  RowWeightGradients(activated, c.dy, products, d_weights2);
  GluBackward(kOp, c.packed, c.packed, d_activated, d_packed2, d_packed2);
  ExpectNear(y, c.y.values(), 1e-15);
  ExpectNear(d_packed2, d_packed.values(), 1e-15);
  ExpectNear(d_weights2, d_weights.values(), 1e-15);
}

TEST(RowWeights, AreRowsTimesTheirWeight) {
  Numbers y(TensorType{DType::bf16, 4});
  WeighRows(Numbers(DType::bf16, {1, 2, 3, 4}), Numbers(DType::fp32, {10, 0.5}), y);
  EXPECT_EQ(y.values(), (std::vector<double>{10, 20, 1.5, 2}));
}

TEST(RowWeights, HaveTheSumOfProductsAsGradientAsTheyAreStored) {
  // 257 is 256 in bf16, and 1 more is 257 in fp32.
  const Numbers x(DType::bf16, {1, 1, 2, 3}), dy(DType::fp32, {257, 1, 1, 1});
  Numbers rounded(TensorType{DType::bf16, 4}), sums(TensorType{DType::fp32, 2}), exact(TensorType{DType::fp32, 4});
  RowWeightGradients(x, dy, rounded, sums);
  EXPECT_EQ(sums.values(), (std::vector<double>{257, 5}));
  RowWeightGradients(x, dy, exact, sums);
  EXPECT_EQ(sums.values(), (std::vector<double>{258, 5}));
  EXPECT_EQ(exact.values(), (std::vector<double>{257, 1, 2, 3}));
}

}  // namespace
}  // namespace tidemark::kernels::row_weights_test
