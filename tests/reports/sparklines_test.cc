// SPDX-License-Identifier: Apache-2.0
#include "reports/render/sparklines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/traces/trace_script.h"

namespace tidemark::sparklines_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

TEST(Sparklines, AreInEighthsAndWhatIsNotNothingIsSeen) {
  EXPECT_EQ(SparklineText({0, 0.001, 0.125, 0.126, 0.5, 1, 7}), " ▁▁▂▄██");
}

TEST(Sparklines, HaveOneScaleAndSayHowHigh) {
  Trace low = Play({Allocated("a", 100), Freed("a")}), high = Play({Allocated("a", 400), Freed("a")});
  const std::vector<Sparkline> lines = MemorySparklines({{"low", &low}, {"high", &high}});
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0].label, "low");
  EXPECT_DOUBLE_EQ(*std::max_element(lines[0].heights.begin(), lines[0].heights.end()), 0.25);
  EXPECT_DOUBLE_EQ(*std::max_element(lines[1].heights.begin(), lines[1].heights.end()), 1);
  EXPECT_THAT(lines[0].detail, HasSubstr("up to 100 B"));
}

TEST(Sparklines, OfATraceWithoutMemoryThereIsNone) {
  const Trace empty;
  EXPECT_THAT(MemorySparklines({{"memory", &empty}}), IsEmpty());
}

}  // namespace
}  // namespace tidemark::sparklines_test
