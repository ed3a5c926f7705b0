// SPDX-License-Identifier: Apache-2.0
#include "kernels/gradient_clip.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/kernels/numbers.h"

namespace tidemark::kernels::gradient_clip_test {
namespace {

/// The steps of clip_grad_norm_ over two tensors, of norms 3 and 4: together 5.
double FirstAfterClipping(double max_norm, Numbers& first) {
  Numbers norms(TensorType{DType::fp32, 2}), total(TensorType{DType::fp32, 1});
  const Numbers second(DType::bf16, {0, 4});
  GradientNorm(std::vector<ConstTensor>{first}, norms, 0);
  GradientNorm(std::vector<ConstTensor>{second}, norms, 1);
  EXPECT_EQ(norms.values(), (std::vector<double>{3, 4}));
  SumOfSquares(norms, total);
  EXPECT_EQ(total[0], 25);
  TakeClipCoefficient(max_norm, total);
  ClipGradient(total, first);
  return first[0];
}

TEST(GradientClip, ScalesDownToTheNorm) {
  Numbers gradient(DType::fp32, {1, 2, 2});
  EXPECT_NEAR(FirstAfterClipping(2.5, gradient), 0.5, 1e-6);  // 2.5 / (5 + 1e-6)
}

TEST(GradientClip, LeavesSmallGradientsAlone) {
  Numbers gradient(DType::fp32, {1, 2, 2});
  EXPECT_EQ(FirstAfterClipping(7, gradient), 1);
}

TEST(GradientClip, ANaNIsInTheCoefficient) {
  EXPECT_TRUE(std::isnan(ClipCoefficient(1, std::numeric_limits<double>::quiet_NaN())));
}

TEST(GradientClip, NormsOfLongTensorsAreThoseOfTheSum) {
  const Numbers gradient = Numbers::Random({DType::fp32, 5000}, 1);
  Numbers norms(TensorType{DType::fp32, 1});
  GradientNorm(std::vector<ConstTensor>{gradient}, norms, 0);
  EXPECT_NEAR(norms[0] / std::sqrt(Dot(gradient, gradient)), 1, 60 * 0x1p-24);  // 32 lanes in 5 stretches
}

// A flat tensor some of whose parameters count on another rank: norms 3 and 4 of what counts are 5 together.
TEST(GradientClip, ATensorInPartsHasOneNorm) {
  const Numbers first(DType::fp32, {1, 2, 2}), second(DType::bf16, {0, 4});
  Numbers norms(TensorType{DType::fp32, 2});
  GradientNorm(std::vector<ConstTensor>{first, second}, norms, 0);
  GradientNorm({}, norms, 1);
  EXPECT_EQ(norms.values(), (std::vector<double>{5, 0}));
}

}  // namespace
}  // namespace tidemark::kernels::gradient_clip_test
