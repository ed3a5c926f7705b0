// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/adjacent.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <vector>

namespace tidemark::adjacent_test {
namespace {

using kernels::Slice;
using kernels::Tensor;

/// Numbers of one tensor, and how many parts they are of.
struct Part {
  Tensor tensor;
  int count = 1;

  bool Continues(const Part& previous) const { return AreAdjacent(previous.tensor, tensor); }
  void Extend(const Part& next) {
    tensor.type.elements += next.tensor.type.elements;
    count += next.count;
  }
};

class Adjacent : public testing::Test {
 protected:
  std::array<float, 64> numbers_{};
  Tensor all_{{DType::fp32, 64}, numbers_.data()};
};

TEST_F(Adjacent, OneBeginsWhereTheOtherEnds) {
  EXPECT_TRUE(AreAdjacent(Slice(all_, 0, 8), Slice(all_, 8, 3)));
  EXPECT_FALSE(AreAdjacent(Slice(all_, 0, 8), Slice(all_, 9, 3)));  // a gap
  EXPECT_FALSE(AreAdjacent(Slice(all_, 0, 8), Slice(all_, 7, 3)));  // both have the eighth
  EXPECT_FALSE(AreAdjacent(Slice(all_, 8, 3), Slice(all_, 0, 8)));  // the wrong way round
  const Tensor of_16_bits{{DType::bf16, 8}, numbers_.data() + 8};
  EXPECT_FALSE(AreAdjacent(Slice(all_, 0, 8), of_16_bits));
  const Tensor without_data{{DType::fp32, 0}, nullptr};
  EXPECT_FALSE(AreAdjacent(without_data, without_data));
}

TEST_F(Adjacent, PartsInARowAreOne) {
  const std::vector<Part> joined = Joined<Part>(
      {{Slice(all_, 0, 8)}, {Slice(all_, 8, 1)}, {Slice(all_, 9, 7)}, {Slice(all_, 20, 4)}, {Slice(all_, 24, 4)}});
  ASSERT_EQ(joined.size(), 2U);
  EXPECT_EQ(joined[0].tensor.data, numbers_.data());
  EXPECT_EQ(joined[0].tensor.type.elements, 16);
  EXPECT_EQ(joined[0].count, 3);
  EXPECT_EQ(joined[1].tensor.data, numbers_.data() + 20);
  EXPECT_EQ(joined[1].tensor.type.elements, 8);
}

TEST_F(Adjacent, PartsInAnotherOrderStayApart) {
  EXPECT_EQ(Joined<Part>({{Slice(all_, 8, 8)}, {Slice(all_, 0, 8)}}).size(), 2U);
  EXPECT_TRUE(Joined<Part>({}).empty());
}

}  // namespace
}  // namespace tidemark::adjacent_test
