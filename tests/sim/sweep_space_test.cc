// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <set>
#include <vector>

#include "sim/sweep/axis.h"
#include "sim/sweep/space.h"

namespace tidemark::sweep_space_test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> ValuesOf(const std::string& text) {
  const Result<SweepAxis> axis = ParseSweepAxis(text);
  EXPECT_TRUE(axis.ok()) << (axis ? "" : axis.error().Text());
  return axis ? axis->values : std::vector<std::string>();
}

std::string RefusalOf(const std::string& text) {
  const Result<SweepAxis> axis = ParseSweepAxis(text);
  return axis ? "accepted" : axis.error().Text();
}

TEST(SweepAxis, TakesListsAndRanges) {
  EXPECT_THAT(ValuesOf("strategy=nanotron,ddp-last"), ElementsAre("nanotron", "ddp-last"));
  EXPECT_THAT(ValuesOf("micro_batch_size=1..4"), ElementsAre("1", "2", "3", "4"));
  EXPECT_THAT(ValuesOf("accumulation_steps=1..64:x2"), ElementsAre("1", "2", "4", "8", "16", "32", "64"));
  EXPECT_THAT(ValuesOf("accumulation_steps=3..20:x3"), ElementsAre("3", "9"));  // the end is no value of its own
  EXPECT_THAT(ValuesOf("accumulation_steps=8..24:+8,100,7..7"), ElementsAre("8", "16", "24", "100", "7"));
  EXPECT_THAT(ValuesOf("optimizer_step.clip_norm=null,1.0"), ElementsAre("null", "1.0"));
  EXPECT_THAT(ValuesOf("machine=\"a, b.yaml\",cpu"), ElementsAre("a, b.yaml", "cpu"));
  EXPECT_THAT(ValuesOf("sync.bucket_bytes=25 MiB, 1 GiB"), ElementsAre("25 MiB", "1 GiB"));
}

TEST(SweepAxis, RefusesWhatIsNoListOfValues) {
  EXPECT_THAT(RefusalOf("layout.dp"), AllOf(StartsWith("--vary layout.dp: expected key=value"), HasSubstr("--vary")));
  EXPECT_THAT(RefusalOf("=1"), HasSubstr("expected key=value"));
  EXPECT_THAT(RefusalOf("layout.dp="), HasSubstr("no values"));
  EXPECT_THAT(RefusalOf("layout.dp=1,,2"), HasSubstr("a value is empty"));
  EXPECT_THAT(RefusalOf("layout.dp=[1"), HasSubstr("expected key=value"));
  EXPECT_THAT(RefusalOf("layout.dp=[1, 2]"), HasSubstr("expected plain values, found a list"));
  EXPECT_THAT(RefusalOf("layout.dq=1"), HasSubstr("layout.dp"));
  EXPECT_THAT(RefusalOf("layout.dp=1,2,1"), HasSubstr("1 is given twice"));
  EXPECT_THAT(RefusalOf("layout.dp=1..4,2"), HasSubstr("2 is given twice"));
}

TEST(SweepAxis, RefusesRangesThatLeadNowhere) {
  for (const char* range :
       {"4..1", "1..4:+0", "1..4:x1", "0..4:x2", "1..999999999999999999999", "0.5..0.9", "6GiB..7GiB", "1e-5..1e-3"}) {
    EXPECT_THAT(RefusalOf(std::string("accumulation_steps=") + range), HasSubstr("range")) << range;
  }
  EXPECT_THAT(RefusalOf("accumulation_steps=1..1000001"), HasSubstr("more than 1,000,000 values"));
  EXPECT_EQ(ValuesOf("accumulation_steps=1..1000000").size(), 1'000'000U);
  EXPECT_EQ(ValuesOf("accumulation_steps=1..999999999999999999:x999999999999999999").size(), 2U);
}

TEST(SweepSpace, CountsEveryCombinationOnce) {
  const Result<SweepSpace> space =
      SweepSpace::Of({{"layout.dp", {"1", "2", "4"}}, {"layout.tp", {"1"}}, {"micro_batch_size", {"1", "2"}}});
  ASSERT_TRUE(space.ok());
  ASSERT_EQ(space->size(), 6);
  std::set<std::vector<std::size_t>> seen;
  std::vector<std::size_t> values(3);
  for (std::int64_t i = 0; i < space->size(); ++i) {
    space->At(i, values);
    seen.insert(values);
  }
  EXPECT_EQ(seen.size(), 6U);
  space->At(1, values);
  EXPECT_THAT(values, ElementsAre(0U, 0U, 1U));  // the last axis changes fastest
}

TEST(SweepSpace, RefusesContradictionsAndWhatNobodyCanCount) {
  EXPECT_THAT(SweepSpace::Of({}).error().Text(), HasSubstr("nothing is varied"));
  EXPECT_THAT(SweepSpace::Of({{"layout.dp", {"1"}}, {"layout.dp", {"2"}}}).error().Text(), HasSubstr("varied twice"));
  SweepAxis wide{"seed", std::vector<std::string>(1'000'000, "1")};
  std::vector<SweepAxis> axes;
  for (const char* key : {"a", "b", "c"}) {
    axes.push_back({key, wide.values});
  }
  EXPECT_EQ(SweepSpace::Of(axes)->size(), 1'000'000'000'000'000'000);
  axes.push_back({"d", {"1", "2"}});
  EXPECT_THAT(SweepSpace::Of(axes).error().Text(), HasSubstr("combinations"));
}

}  // namespace
}  // namespace tidemark::sweep_space_test
