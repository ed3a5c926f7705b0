// SPDX-License-Identifier: Apache-2.0
#include "reports/check/verdict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/reports/checked_peaks.h"

namespace tidemark::check_verdict_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

ObservedPeak Gathers(std::int64_t gathered) {
  return PeakWith({CheckedTensor("w", Category::parameter, 100, "before the step"),
                   CheckedTensor("layer.gathered", Category::tp_gather, gathered)});
}

Bytes SumOf(const std::vector<PeakChange>& changes) {
  Bytes sum;
  for (const PeakChange& change : changes) {
    sum += change.difference();
  }
  return sum;
}

TEST(Verdict, ofAPredictedPeakIsExact) {
  EXPECT_EQ(JudgeAgainst(Gathers(50), Gathers(50)).verdict(), PeakVerdict::pass);
  EXPECT_EQ(JudgeAgainst(Gathers(50), Gathers(51)).verdict(), PeakVerdict::grown);
  EXPECT_EQ(JudgeAgainst(Gathers(50), Gathers(49)).verdict(), PeakVerdict::shrunk);
}

TEST(Verdict, ofGrowthNamesCategoryTensorPhaseAndBytes) {
  const CheckedScenario grown = JudgeAgainst(Gathers(50), Gathers(80));
  EXPECT_TRUE(grown.Fails());
  ASSERT_EQ(grown.grown.size(), 1U);
  EXPECT_EQ(grown.grown[0].category, Category::tp_gather);
  EXPECT_EQ(grown.grown[0].tensor, "layer.gathered");
  EXPECT_EQ(grown.grown[0].phase, "forward 0");
  EXPECT_EQ(grown.grown[0].until, "backward 0");
  EXPECT_EQ(grown.grown[0].difference(), Bytes(30));
  EXPECT_THAT(CheckSentence(grown), AllOf(HasSubstr("grew by 30 B"), HasSubstr("tp_gather 'layer.gathered' +30 B"),
                                          HasSubstr("forward 0"), HasSubstr("backward of microbatch 0")));
  EXPECT_THAT(CheckHint(ReportOf({grown}), grown), HasSubstr("tidemark baseline update gate/scenarios.yaml"));
}

TEST(Verdict, hasChangesThatSumToTheDifferenceWhereThePeakMoves) {
  // 50 of a gather go, 70 of a gradient come: 100 + 50 = 150 before, 100 + 70 = 170 now
  const ObservedPeak now = PeakWith({CheckedTensor("w", Category::parameter, 100, "before the step"),
                                     CheckedTensor("gradient of w", Category::gradient, 70, "backward 0")});
  const CheckedScenario moved = JudgeAgainst(Gathers(50), now);
  EXPECT_EQ(moved.verdict(), PeakVerdict::grown);
  ASSERT_EQ(moved.grown.size(), 1U);
  ASSERT_EQ(moved.shrunk.size(), 1U);
  EXPECT_EQ(moved.grown[0].phase, "backward 0");
  EXPECT_EQ(moved.shrunk[0].tensor, "layer.gathered");
  EXPECT_EQ(SumOf(moved.grown) + SumOf(moved.shrunk), *moved.delta());
  EXPECT_EQ(moved.delta(), Bytes(20));
}

TEST(Verdict, ofAShrinkPassesAndSaysHowToKeepIt) {
  const CheckedScenario shrunk = JudgeAgainst(Gathers(50), Gathers(20));
  EXPECT_FALSE(shrunk.Fails());
  EXPECT_EQ(shrunk.delta(), Bytes(-30));
  EXPECT_THAT(CheckSentence(shrunk), HasSubstr("shrank by 30 B"));
  EXPECT_THAT(CheckHint(ReportOf({shrunk}), shrunk), HasSubstr("baseline update"));
}

TEST(Verdict, ofAMeasuredPeakHasATolerance) {
  // 5 % of 1000 is 50
  EXPECT_EQ(JudgeAgainst(MeasuredPeak(1000), MeasuredPeak(1050)).verdict(), PeakVerdict::pass);
  EXPECT_EQ(JudgeAgainst(MeasuredPeak(1000), MeasuredPeak(1051)).verdict(), PeakVerdict::grown);
  EXPECT_EQ(JudgeAgainst(MeasuredPeak(1000), MeasuredPeak(950)).verdict(), PeakVerdict::pass);
  EXPECT_EQ(JudgeAgainst(MeasuredPeak(1000), MeasuredPeak(949)).verdict(), PeakVerdict::shrunk);
}

TEST(Verdict, onOtherHardwareIsNone) {
  const CheckedScenario other = JudgeAgainst(MeasuredPeak(1000), MeasuredPeak(1000, "NVIDIA H200"));
  EXPECT_EQ(other.verdict(), PeakVerdict::error);
  EXPECT_TRUE(other.Fails());
  EXPECT_THAT(CheckSentence(other), HasSubstr("other hardware than its baseline: name NVIDIA H100 -> NVIDIA H200"));
  EXPECT_THAT(CheckHint(ReportOf({other}), other), HasSubstr("tidemark baseline promote"));
}

TEST(Verdict, ofAPredictionDoesNotLookAtHardware) {
  ObservedPeak elsewhere = Gathers(50);
  EXPECT_EQ(JudgeAgainst(Gathers(50), elsewhere).verdict(), PeakVerdict::pass);
}

TEST(Verdict, isNewWhereTheBaselineIsOfTheOtherKind) {
  EXPECT_EQ(JudgeAgainst(Gathers(50), MeasuredPeak(150)).verdict(), PeakVerdict::new_one);
  EXPECT_THAT(CheckSentence(JudgeAgainst(MeasuredPeak(150), Gathers(50))),
              HasSubstr("has no baseline that was predicted, only a measured one"));
}

TEST(Verdict, isNewOrLostWhereOnlyOneSideKnowsTheScenario) {
  const auto checked =
      Judge({{ScenarioOf("b", Gathers(50)), Gathers(50)}}, BaselineWith("a", Gathers(50)), "gate/baseline.json");
  ASSERT_EQ(checked.size(), 2U);
  EXPECT_EQ(checked[0].name, "b");
  EXPECT_EQ(checked[0].verdict(), PeakVerdict::new_one);
  EXPECT_EQ(checked[1].name, "a");
  EXPECT_EQ(checked[1].verdict(), PeakVerdict::lost);
  EXPECT_EQ(checked[1].file, "gate/baseline.json");
  EXPECT_EQ(checked[1].baseline, Bytes(150));
  EXPECT_TRUE(checked[0].Fails() && checked[1].Fails());
}

TEST(Verdict, ofAJobThatDiffersIsTheSameAndListsTheKeys) {
  ObservedPeak now = Gathers(50);
  now.job = R"({"layout": {"tp": 8}})";
  const CheckedScenario checked = JudgeAgainst(Gathers(50), now);
  EXPECT_EQ(checked.verdict(), PeakVerdict::pass);
  ASSERT_EQ(checked.job_changed.size(), 1U);
  EXPECT_EQ(checked.job_changed[0].key, "layout.tp");
  EXPECT_THAT(checked.job_changed[0].values, testing::ElementsAre("4", "8"));
  now.steps = 2;
  EXPECT_EQ(JudgeAgainst(Gathers(50), now).job_changed.back().key, "steps");
}

// A baseline of an older version lacks keys that came since.
TEST(Verdict, ofAKeyThatIsNewAndStandsAtItsDefaultIsNoDifference) {
  ObservedPeak now = Gathers(50);
  now.job = R"({"layout": {"tp": 4, "cp": 1}, "network": {"rotary_table": "none"}})";
  EXPECT_TRUE(JudgeAgainst(Gathers(50), now).job_changed.empty());
  now.job = R"({"layout": {"tp": 4}, "network": {"rotary_table": "pairs"}})";
  const CheckedScenario chosen = JudgeAgainst(Gathers(50), now);
  ASSERT_EQ(chosen.job_changed.size(), 1U);
  EXPECT_EQ(chosen.job_changed[0].key, "network.rotary_table");
  EXPECT_THAT(chosen.job_changed[0].values, testing::ElementsAre("-", "pairs"));
}

TEST(Verdict, isOverBudgetByWhatADeviceHasToHave) {
  ObservedPeak now = Gathers(50);
  now.device = Bytes(500);  // tensors, context, libraries
  Scenario scenario = ScenarioOf("a", now);
  const auto verdict = [&](std::int64_t budget, const ObservedPeak& before) {
    scenario.budget = Bytes(budget);
    return Judge({{scenario, now}}, BaselineWith("a", before), "b").front();
  };
  EXPECT_EQ(verdict(500, Gathers(50)).verdict(), PeakVerdict::pass);
  EXPECT_EQ(verdict(499, Gathers(50)).verdict(), PeakVerdict::over_budget);
  const CheckedScenario both = verdict(499, Gathers(40));
  EXPECT_EQ(both.verdict(), PeakVerdict::over_budget);
  EXPECT_EQ(both.against, PeakVerdict::grown);
  EXPECT_THAT(CheckSentence(both), AllOf(HasSubstr("needs up to 500 B of its device, 1 B"), HasSubstr("grew by 10 B")));
}

TEST(Verdict, ofABrokenJobIsItsSentenceAndLeavesTheOthers) {
  const Error broken{ErrorCode::bad_input, "job.yaml:3", "there is no such key", "did you mean layout?"};
  const auto checked = Judge({{ScenarioOf("broken", Gathers(1)), broken}, {ScenarioOf("a", Gathers(50)), Gathers(50)}},
                             BaselineWith("a", Gathers(50)), "b");
  EXPECT_EQ(checked[0].verdict(), PeakVerdict::error);
  EXPECT_EQ(CheckSentence(checked[0]), "job.yaml:3: there is no such key");
  EXPECT_EQ(CheckHint(ReportOf(checked), checked[0]), "did you mean layout?");
  EXPECT_EQ(checked[1].verdict(), PeakVerdict::pass);
}

}  // namespace
}  // namespace tidemark::check_verdict_test
