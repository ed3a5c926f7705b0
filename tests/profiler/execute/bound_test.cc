// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "profiler/execute/numerics.h"

namespace tidemark::bound_test {
namespace {

// 4 u sqrt(n): u is 2^-8 in bf16, 2^-24 in fp32.
TEST(Bound, GrowsWithTheRootOfTheRoundings) {
  EXPECT_DOUBLE_EQ(BoundOf(DType::bf16, 100), 40.0 / 256);
  EXPECT_DOUBLE_EQ(BoundOf(DType::bf16, 10'000), 400.0 / 256);
  EXPECT_DOUBLE_EQ(BoundOf(DType::fp32, 100), 40.0 / (1 << 24));
}

TEST(Bound, IsTheSameForEveryLengthInFp64) {
  EXPECT_EQ(BoundOf(DType::fp64, 1), 1e-10);
  EXPECT_EQ(BoundOf(DType::fp64, 1'000'000), 1e-10);
}

// W of 500 roundings in fp64, u = 2^-53, over the bound of 1e-10.
TEST(Bound, TheFloorInFp64IsWhatRoundingsLeaveOverIt) {
  const double walk = BoundOf(DType::fp32, 500) / (std::int64_t{1} << 29);
  EXPECT_NEAR(walk / BoundOf(DType::fp64, 500), kExactFloor, 1e-6);
}

}  // namespace
}  // namespace tidemark::bound_test
