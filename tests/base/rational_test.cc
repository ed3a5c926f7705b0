// SPDX-License-Identifier: Apache-2.0
#include "base/rational.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/rational_text.h"

namespace tidemark::rational_test {
namespace {

TEST(Rational, IsKeptInLowestTerms) {
  EXPECT_EQ(Rational(6, 4).numerator(), 3);
  EXPECT_EQ(Rational(6, 4).denominator(), 2);
  EXPECT_EQ(Rational(-2, 4), Rational(-1, 2));
  EXPECT_EQ(Rational(0, 7), Rational(0));
  EXPECT_EQ(Rational(), Rational(1));
}

TEST(Rational, MultipliesExactly) {
  EXPECT_EQ(Rational(1, 3) * Rational(1, 16), Rational(1, 48));
  EXPECT_EQ(Rational(2, 3) * Rational(3, 2), Rational(1));
  EXPECT_NE(Rational(1, 3), Rational(333333333, 1000000000));
}

TEST(Rational, CancelsBeforeItMultiplies) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 40;
  EXPECT_EQ(Rational(kLarge, 3) * Rational(5, kLarge), Rational(5, 3));  // 5 * 2^40 * 3 would fit, 2^80 would not
  EXPECT_EQ(Rational(kLarge, 1) * Rational(1, kLarge), Rational(1));
}

TEST(Rational, SaysWhereAFollowedFactorNoLongerFits) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 40;
  const Rational product = SaturatingProduct(Rational(kLarge), Rational(kLarge));
  EXPECT_TRUE(product.too_large());
  EXPECT_EQ(product, Rational::TooLarge());
  EXPECT_NE(product, Rational(1));
  EXPECT_TRUE(SaturatingProduct(product, Rational(1, kLarge)).too_large());  // not found back
  EXPECT_EQ(SaturatingProduct(product, Rational(0)), Rational(0));
  EXPECT_TRUE(SaturatingSum(product, Rational(1)).too_large());
  EXPECT_TRUE(SaturatingSum(Rational(1, kLarge), Rational(1, kLarge - 1)).too_large());
  EXPECT_TRUE(SaturatingProduct(Rational(-kLarge), Rational(std::int64_t{1} << 23)).too_large());  // exactly -2^63
  EXPECT_EQ(SaturatingSum(Rational(1, 3), Rational(1, 6)), Rational(1, 2));
  EXPECT_FALSE(Rational(kLarge).too_large());
}

TEST(Rational, IsWrittenAsAFractionAndAsTheNearestNumber) {
  EXPECT_EQ(Text(Rational(3, 4)), "3/4");
  EXPECT_EQ(Text(Rational(-2)), "-2");
  EXPECT_EQ(Text(Rational::TooLarge()), "too large to tell");
  EXPECT_EQ(ToDouble(Rational(3, 4)), 0.75);
  EXPECT_EQ(ToDouble(Rational(0)), 0);
  EXPECT_EQ(ToDouble(Rational::TooLarge()), std::numeric_limits<double>::infinity());
}

TEST(RationalDeathTest, FaultsWhereTheExactProductDoesNotFit) {
  constexpr std::int64_t kLarge = std::int64_t{1} << 40;
  EXPECT_EXIT(Rational(1, kLarge) * Rational(1, kLarge), testing::ExitedWithCode(70), "internal fault");
  EXPECT_EXIT(Rational(1, kLarge) + Rational(1, kLarge - 1), testing::ExitedWithCode(70), "internal fault");
  EXPECT_EXIT(Rational(1, 0), testing::ExitedWithCode(70), "internal fault");
  EXPECT_EXIT(Rational(1, -2), testing::ExitedWithCode(70), "internal fault");
  EXPECT_EXIT(Rational(std::numeric_limits<std::int64_t>::min(), 3), testing::ExitedWithCode(70), "internal fault");
}

}  // namespace
}  // namespace tidemark::rational_test
