// SPDX-License-Identifier: Apache-2.0
#include "kernels/normal.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/random_bits.h"
#include "tests/kernels/numbers.h"

namespace tidemark::kernels::normal_test {
namespace {

std::vector<double> Drawn(const Normal& op, std::int64_t elements) {
  Numbers numbers(TensorType{DType::fp64, elements});
  DrawNormal(op, numbers);
  return numbers.values();
}

// The reference implementation's first three outputs of the seed 1234567 (https://prng.di.unimi.it/splitmix64.c); its
// state moves by the golden ratio between them.
TEST(RandomBits, AreSplitMix64s) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15U;
  EXPECT_EQ(RandomBits(1234567), 6457827717110365317U);
  EXPECT_EQ(RandomBits(1234567 + kGolden), 3203168211198807973U);
  EXPECT_EQ(RandomBits(1234567 + 2 * kGolden), 9817491932198370423U);
}

// Of n numbers the mean deviates by 1 / sqrt n, the variance by sqrt(2 / n), the mean of fourth powers, which is 3, by
// sqrt(96 / n): five deviations are once in two million.
TEST(DrawNormal, HasTheMomentsOfItsDistribution) {
  constexpr std::int64_t kCount = 200'000;
  double sum = 0, squares = 0, fourths = 0;
  for (const double x : Drawn({.key = 7, .deviation = 0.5, .columns = kCount, .stride = kCount}, kCount)) {
    const double z = x / 0.5;
    sum += z;
    squares += z * z;
    fourths += z * z * z * z;
  }
  EXPECT_NEAR(sum / kCount, 0, 5 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1, 5 * std::sqrt(2.0 / kCount));
  EXPECT_NEAR(fourths / kCount, 3, 5 * std::sqrt(96.0 / kCount));
}

// Two ranks divide a matrix of 4 x 6 by its columns: each draws three of every row.
TEST(DrawNormal, DrawsAPartsNumbersOfTheWhole) {
  const std::vector<double> whole = Drawn({.key = 3, .columns = 24, .stride = 24}, 24);
  const std::vector<double> right = Drawn({.key = 3, .first = 3, .columns = 3, .stride = 6}, 12);
  const std::vector<double> rest = Drawn({.key = 3, .first = 3, .columns = 3, .stride = 6, .skipped = 4}, 8);
  for (std::size_t i = 0; i < right.size(); ++i) {
    EXPECT_EQ(right[i], whole[i / 3 * 6 + 3 + i % 3]);
    if (i >= 4) {
      EXPECT_EQ(rest[i - 4], right[i]);
    }
  }
}

TEST(DrawNormal, RoundsOnce) {
  const Normal op{.key = 5, .columns = 1000, .stride = 1000};
  Numbers narrow(TensorType{DType::fp32, 1000});
  DrawNormal(op, narrow);
  const std::vector<double> wide = Drawn(op, 1000);
  for (std::int64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(narrow[i], static_cast<float>(wide[static_cast<std::size_t>(i)]));
  }
}

}  // namespace
}  // namespace tidemark::kernels::normal_test
