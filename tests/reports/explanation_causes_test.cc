// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/explanation_causes.h"

#include <gtest/gtest.h>

namespace tidemark::explanation_causes_test {
namespace {

LiveBuffers Alive(DType dtype, const char* sharding, std::int64_t bytes) {
  LiveBuffers live;
  live.category = Category::bucket;
  live.dtype = dtype;
  live.sharding = sharding;
  live.bytes = Bytes(bytes);
  return live;
}

// What is cut otherwise is joined first, and is then nearly gone itself, where all of the category has another dtype.
TEST(Causes, OfOneThatWasJoinedTwiceAreThatOfTheLast) {
  Peak before, after;
  before.live = {Alive(DType::bf16, "whole", 1000)};
  after.live = {Alive(DType::bf16, "own", 5), Alive(DType::fp32, "own", 2000)};
  const Causes causes(before, after);
  ASSERT_EQ(causes.ThatGrow(true).size(), 1U);
  EXPECT_TRUE(causes.ThatGrow(false).empty());
  const Cause& cause = *causes.ThatGrow(true).front();
  EXPECT_EQ(cause.before, Bytes(1000));
  EXPECT_EQ(cause.after, Bytes(2005));
  EXPECT_EQ(cause.dtype_before, "bf16");
  EXPECT_EQ(cause.dtype_after, "fp32");
  EXPECT_EQ(cause.sharding_before, "whole");
  EXPECT_EQ(cause.sharding_after, "own");
}

}  // namespace
}  // namespace tidemark::explanation_causes_test
