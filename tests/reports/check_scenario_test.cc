// SPDX-License-Identifier: Apache-2.0
#include "reports/check/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidemark::check_scenario_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Result<std::vector<Scenario>> Parse(const std::string& text) { return ParseScenarios(text, "gate/scenarios.yaml"); }

std::string ErrorOf(const std::string& text) {
  const auto scenarios = Parse(text);
  return scenarios ? "accepted" : scenarios.error().Text();
}

TEST(Scenarios, areReadWithTheirDefaults) {
  const auto scenarios =
      Parse("# two\nscenarios:\n  - {name: a, job: ../jobs/a.yaml}\n  - {name: b, job: /b.yaml, mode: run}\n");
  ASSERT_TRUE(scenarios) << scenarios.error().Text();
  ASSERT_EQ(scenarios->size(), 2U);
  const Scenario &a = scenarios->at(0), &b = scenarios->at(1);
  EXPECT_EQ(a.job, "jobs/a.yaml");  // from the folder of the scenario file
  EXPECT_EQ(b.job, "/b.yaml");
  EXPECT_FALSE(a.run);
  EXPECT_TRUE(b.run);
  EXPECT_EQ(a.tolerance_percent, 0);  // a prediction is exact
  EXPECT_EQ(b.tolerance_percent, 5);
  EXPECT_FALSE(a.budget);
  EXPECT_EQ(a.line, 3);
  EXPECT_EQ(b.line, 4);
}

TEST(Scenarios, takeBudgetsInHumanUnitsAndToleranceInPercent) {
  const auto scenarios =
      Parse("scenarios: [{name: a, job: a.yaml, budget: 24 GiB, mode: run, tolerance: 2.5 %, steps: 3}]");
  ASSERT_TRUE(scenarios) << scenarios.error().Text();
  EXPECT_EQ(scenarios->front().budget, Bytes(std::int64_t{24} << 30));
  EXPECT_EQ(scenarios->front().tolerance_percent, 2.5);
  EXPECT_EQ(scenarios->front().steps, 3);
}

TEST(Scenarios, changeAJobAsSetDoes) {
  const auto scenarios = Parse(
      "scenarios: [{name: a, job: a.yaml, set: {layout.tp: 8, layout: {dp: 2, tp: 4}, sync.expression: "
      "\"(i + 1) % steps == 0\", optimizer_step.clip_norm: null, layout.layers_per_stage: [1, 2]}}]");
  ASSERT_TRUE(scenarios) << scenarios.error().Text();
  EXPECT_THAT(scenarios->front().set,
              ElementsAre("layout.tp=8", "layout={dp: 2, tp: 4}", "sync.expression=\"(i + 1) % steps == 0\"",
                          "optimizer_step.clip_norm=null", "layout.layers_per_stage=[1, 2]"));
}

TEST(Scenarios, nameTheNearestKeyAndTheLineOfAMistake) {
  EXPECT_THAT(ErrorOf("scenarios:\n  - name: a\n    job: a.yaml\n    budgte: 8 GiB\n"),
              testing::AllOf(HasSubstr("gate/scenarios.yaml:4: budgte: there is no such key"),
                             HasSubstr("did you mean budget?")));
  EXPECT_THAT(ErrorOf("scenarios: [{name: a, job: b, mode: runn}]"), HasSubstr("did you mean run?"));
  EXPECT_THAT(ErrorOf("scenarios: [{name: a, job: b}]\nscenario: []\n"),
              HasSubstr(":2: scenario: there is no such key"));
}

TEST(Scenarios, areRefusedWhereSomethingIsMissing) {
  EXPECT_THAT(ErrorOf("scenarios: [{job: a.yaml}]"), HasSubstr("a scenario lacks 'name'"));
  EXPECT_THAT(ErrorOf("scenarios: [{name: a}]"), HasSubstr("a scenario lacks 'job'"));
  EXPECT_THAT(ErrorOf("scenarios: []"), HasSubstr("expected a list of scenarios"));
  EXPECT_THAT(ErrorOf(""), HasSubstr("expected a list of scenarios, found none"));
  EXPECT_THAT(ErrorOf("scenarios: [a]"), HasSubstr("expected a scenario, found 'a'"));
}

TEST(Scenarios, areRefusedWhereTwoHaveOneName) {
  EXPECT_THAT(ErrorOf("scenarios:\n  - {name: a, job: x}\n  - {name: a, job: y}\n"),
              HasSubstr("gate/scenarios.yaml:3: name: 'a' is also the scenario in line 2"));
}

TEST(Scenarios, refuseValuesThatMeanNothing) {
  EXPECT_THAT(ErrorOf("scenarios: [{name: a, job: b, budget: 24}]"), HasSubstr("budget"));  // bytes: no device
  EXPECT_THAT(ErrorOf("scenarios: [{name: a, job: b, budget: lots}]"), HasSubstr("budget: 'lots' is not a size"));
  EXPECT_THAT(ErrorOf("scenarios: [{name: a, job: b, mode: run, tolerance: -1 %}]"), HasSubstr("from 0 % to 100 %"));
  EXPECT_THAT(ErrorOf("scenarios: [{name: a, job: b, tolerance: 1 %}]"), HasSubstr("is compared to the byte"));
  EXPECT_THAT(ErrorOf("scenarios: [{name: a, job: b, steps: 0}]"), HasSubstr("steps"));
  EXPECT_THAT(ErrorOf("scenarios: [{name: \"a\\nb\", job: b}]"), HasSubstr("expected one line"));
  EXPECT_THAT(ErrorOf("scenarios: [{name: a, job: b, set: [layout.tp=8]}]"),
              HasSubstr("set: expected keys of the job"));
}

}  // namespace
}  // namespace tidemark::check_scenario_test
