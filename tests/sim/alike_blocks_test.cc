// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/alike_blocks.h"

#include <gtest/gtest.h>

namespace tidemark::alike_blocks_test {
namespace {

TEST(AlikeBlocks, StretchesEndWhereTheDescriptionsChange) {
  // a b b b c d c d c d d
  const AlikeBlocks alike({{1}, {2}, {2}, {2}, {3}, {4}, {3}, {4}, {3}, {4}, {4}});
  EXPECT_EQ(alike.Key(1), alike.Key(2));
  EXPECT_EQ(alike.Left(1), 3);
  EXPECT_NE(alike.Key(3), alike.Key(4));
  EXPECT_EQ(alike.Key(4), alike.Key(6));
  EXPECT_NE(alike.Key(4), alike.Key(5));
  EXPECT_EQ(alike.Left(6), 4);
  EXPECT_EQ(alike.Period(6), 2);
}

}  // namespace
}  // namespace tidemark::alike_blocks_test
