// SPDX-License-Identifier: Apache-2.0
#include "kernels/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "kernels/dropout.h"
#include "tests/kernels/numbers.h"

namespace tidemark::kernels::activation_test {
namespace {

double Definition(Activation kind, double x) {
  switch (kind) {
    case Activation::relu:
      return std::max(x, 0.0);
    case Activation::gelu:
      return x / 2 * (1 + std::erf(x / std::sqrt(2)));
    case Activation::gelu_tanh:
      return x / 2 * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  }
  return 0;
}

class EveryActivation : public testing::TestWithParam<Activation> {};

TEST_P(EveryActivation, IsItsDefinition) {
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
    Numbers x = Numbers::Random({dtype, 1100}, 1);
    Scale(5, x);
    Numbers y(ActivationOutput(x.type()));
    ActivationForward(GetParam(), x, y);
    std::vector<double> expected;
    for (std::int64_t i = 0; i < 1100; ++i) {
      expected.push_back(Definition(GetParam(), x[i]));
    }
    // Exponents of up to 20 turn a rounding into 20; the definition itself cancels for x far below 0.
    const double compute = dtype == DType::fp64 ? 0x1p-53 : 0x1p-24;
    ExpectNear(y, expected, [&](std::size_t i) {
      return 1.01 * UnitRoundoff(dtype) * std::abs(expected[i]) + 50 * compute * (std::abs(expected[i]) + 0.2);
    });
  }
}

TEST_P(EveryActivation, GradientIsThatOfFiniteDifferences) {
  Numbers x = Numbers::Random({DType::fp64, 60}, 2), y(x.type()), dx(x.type());
  Scale(3, x);
  const Numbers dy = Numbers::Random(x.type(), 3);
  const auto loss = [&] {
    ActivationForward(GetParam(), x, y);
    return Dot(dy, y);
  };
  loss();
  ActivationBackward(GetParam(), GetParam() == Activation::relu ? y : x, dy, dx);
  ExpectGradient(loss, x, dx);
}

TEST_P(EveryActivation, LeavesAlmostNothingBelowAndAllAbove) {
  Numbers x(DType::fp32, {-60, 60, std::numeric_limits<double>::quiet_NaN()}), y(x.type());
  ActivationForward(GetParam(), x, y);
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[1], 60);
  EXPECT_TRUE(std::isnan(y[2]));
}

INSTANTIATE_TEST_SUITE_P(Activation, EveryActivation,
                         testing::Values(Activation::relu, Activation::gelu, Activation::gelu_tanh));

// The known answers that come with the authors' library (Random123, tests/kat_vectors, "philox4x32 10").
TEST(Philox, GivesThePublishedWords) {
  using Words = std::array<std::uint32_t, 4>;
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

/// A mask of ones and zeros.
std::vector<unsigned char> MaskOf(const Dropout& op, std::int64_t elements) {
  const Numbers x = Numbers::Random({DType::fp32, elements}, 1);
  Numbers y(x.type()), mask(DropoutOutputs(x.type()).mask);
  DropoutForward(op, x, y, mask);
  return mask.bytes();
}

TEST(Dropout, KeepsAsManyAsItShouldAndScalesThem) {
  const Dropout op{.p = 0.25, .seed = 7, .offset = 3};
  constexpr std::int64_t kElements = 20000;
  const Numbers x = Numbers::Random({DType::fp64, kElements}, 1);
  Numbers y(x.type()), mask(DropoutOutputs(x.type()).mask), dx(x.type());
  DropoutForward(op, x, y, mask);
  DropoutBackward(op, x, mask, dx);
  std::int64_t kept = 0;
  for (std::int64_t i = 0; i < kElements; ++i) {
    const bool keeps = mask.bytes()[static_cast<std::size_t>(i)] == 1;
    kept += keeps ? 1 : 0;
    ASSERT_NEAR(y[i], keeps ? x[i] / 0.75 : 0, 1e-15);
  }
  // Binomial: 5 standard deviations of sqrt(n p (1 - p)) = 61.
  EXPECT_NEAR(static_cast<double>(kept), 0.75 * kElements, 5 * 61.3);
  EXPECT_EQ(dx.bytes(), y.bytes());  // linear: with x as the gradient
}

TEST(Dropout, SeedAndOffsetReplayTheMaskAndOthersDoNot) {
  const Dropout op{.p = 0.5, .seed = 7, .offset = 3};
  const auto mask = MaskOf(op, 1000);
  EXPECT_EQ(MaskOf(op, 1000), mask);
  EXPECT_NE(MaskOf({.p = 0.5, .seed = 8, .offset = 3}, 1000), mask);
  EXPECT_NE(MaskOf({.p = 0.5, .seed = 7, .offset = 4}, 1000), mask);
}

TEST(Dropout, EachElementHasItsWord) {
  const Dropout op{.p = 0.5, .seed = 0x123456789, .offset = 0xABCDEF0123, .first = 3};
  const auto mask = MaskOf(op, 5000);
  for (std::uint32_t i = 0; i < 5000; ++i) {
    const std::uint32_t word = Philox({(i + 3) / 4, 0, 0xCDEF0123, 0xAB}, {0x23456789, 0x1})[(i + 3) % 4];
    ASSERT_EQ(mask[i], word >= 0x80000000 ? 1 : 0) << i;
  }
}

TEST(Dropout, APartOfATensorHasItsPartOfTheMask) {
  Dropout op{.p = 0.5, .seed = 7, .offset = 3};
  const auto whole = MaskOf(op, 100);
  op.first = 37;
  EXPECT_EQ(MaskOf(op, 63), std::vector<unsigned char>(whole.begin() + 37, whole.end()));
}

TEST(Dropout, TheMaskIsTheSameInEveryDType) {
  const Dropout op{.p = 0.1, .seed = 1, .offset = 1};
  Numbers mask[3];
  int i = 0;
  for (const DType dtype : {DType::fp64, DType::fp32, DType::bf16}) {
    const Numbers x = Numbers::Random({dtype, 50}, 1);
    Numbers y(x.type());
    mask[i] = Numbers(DropoutOutputs(x.type()).mask);
    DropoutForward(op, x, y, mask[i++]);
  }
  EXPECT_EQ(mask[0].bytes(), mask[1].bytes());
  EXPECT_EQ(mask[0].bytes(), mask[2].bytes());
}

}  // namespace
}  // namespace tidemark::kernels::activation_test
