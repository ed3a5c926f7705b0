// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/engine/closed_form.h"
#include "sim/engine/simulate.h"
#include "sim/lower/lower.h"
#include "sim/lower/window.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::custom_windows_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

Job CustomJob(const std::string& expression, std::int64_t microbatches, const std::string& step_expression = {}) {
  Job job = OracleJob("ddp-last", microbatches);
  std::get<Decoder>(job.network.shape).layers = 2;
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = expression;
  job.axes.sync.step_expression = step_expression;
  return job;
}

std::size_t TextSize(const Job& job) {
  const Result<StepProgram> step = Lower(job, StepKind::first);
  EXPECT_TRUE(step.ok()) << step.error().Text();
  return Print(step->roles.front()).size();
}

/// By how much each window's gradient is too small, and behind which microbatches the optimizer steps.
struct Steps {
  std::vector<std::int64_t> behind;
  std::vector<Rational> ratio;
};

Steps StepsOf(const Job& job) {
  const Result<std::vector<WindowRun>> windows = WindowsOf(job);
  EXPECT_TRUE(windows.ok()) << windows.error().Text();
  Steps steps;
  std::int64_t microbatch = 0, first = 0;
  for (const WindowRun& run : *windows) {
    for (std::int64_t i = 0; i < run.count; ++i, ++microbatch) {
      if (run.place.last) {
        steps.behind.push_back(microbatch);
        steps.ratio.push_back(run.place.loss_scale * Rational(microbatch + 1 - first));
        first = microbatch + 1;
      }
    }
  }
  return steps;
}

// The predicate in Colossal-AI's documentation on gradient accumulation (at 7f8b16635), idx % (GA - 1) == 0: its first
// windows for GA microbatches, and the gradient over the mean of the window. The loop divides by GA throughout.
TEST(CustomWindows, TheDocumentedPredicateStepsTooEarlyAndOnTooSmallGradients) {
  EXPECT_THAT(StepsOf(CustomJob("i % (steps - 1) == 0", 2)).ratio, ElementsAre(Rational(1, 2), Rational(1, 2)));
  EXPECT_THAT(StepsOf(CustomJob("i % (steps - 1) == 0", 3)).ratio, ElementsAre(Rational(1, 3), Rational(2, 3)));
  EXPECT_THAT(StepsOf(CustomJob("i % (steps - 1) == 0", 4)).ratio, ElementsAre(Rational(1, 4), Rational(3, 4)));
  EXPECT_THAT(StepsOf(CustomJob("i % (steps - 1) == 0", 5)).ratio, ElementsAre(Rational(1, 5), Rational(4, 5)));
  const Error refusal = WindowsOf(CustomJob("i % (steps - 1) == 0", 1)).error();
  EXPECT_THAT(refusal.message, HasSubstr("divides by zero where i is 0 and steps is 1"));
  EXPECT_THAT(refusal.hint, HasSubstr("divide by what is never 0"));
}

TEST(CustomWindows, AnOptimizerThatNeverStepsIsRefused) {
  EXPECT_THAT(WindowsOf(CustomJob("i == 1", 1)).error().message, HasSubstr("never steps within 1 microbatch"));
  EXPECT_THAT(WindowsOf(CustomJob("i == 1", 1)).error().message, Not(HasSubstr("microbatches")));
  EXPECT_THAT(WindowsOf(CustomJob("i == 2", 2)).error().message, HasSubstr("never steps within 2 microbatches"));
}

// Beyond GA microbatches GA stands in the expression as a number.
TEST(CustomWindows, StepsBeyondTheFirstTwoFollowThePredicate) {
  EXPECT_THAT(StepsOf(CustomJob("i % (2 - 1) == 0", 4)).behind, ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(StepsOf(CustomJob("i % (3 - 1) == 0", 7)).behind, ElementsAre(0, 2, 4, 6));
  EXPECT_THAT(StepsOf(CustomJob("i % (4 - 1) == 0", 12)).behind, ElementsAre(0, 3, 6, 9));
  EXPECT_THAT(StepsOf(CustomJob("i % (5 - 1) == 0", 10)).behind, ElementsAre(0, 4, 8));
  EXPECT_THAT(StepsOf(CustomJob("(i + 1) % 2 == 0", 6)).behind, ElementsAre(1, 3, 5));
  EXPECT_THAT(StepsOf(CustomJob("(i + 1) % 3 == 0", 9)).behind, ElementsAre(2, 5, 8));
  EXPECT_THAT(StepsOf(CustomJob("(i + 1) % 4 == 0", 12)).behind, ElementsAre(3, 7, 11));
  EXPECT_THAT(StepsOf(CustomJob("(i + 1) % 5 == 0", 10)).behind, ElementsAre(4, 9));
}

/// The wrong factor that Verify reports at the optimizer is the ratio, not some other one.
TEST(CustomWindows, TheProgramOfTheDocumentedPredicateHasThoseFactors) {
  for (const std::int64_t microbatches : {2, 3, 4, 5}) {
    const Job job = CustomJob("i % (steps - 1) == 0", microbatches);
    const Result<StepProgram> step = Lower(job, StepKind::steady);
    ASSERT_TRUE(step.ok());
    const std::vector<Finding> findings = Verify(*step);
    ASSERT_FALSE(findings.empty());
    // 1/(GA N) arrives; of a window of one microbatch 1/N is right.
    EXPECT_THAT(findings.front().message,
                HasSubstr("factor 1/" + std::to_string(4 * microbatches) + " on behalf of this rank and 1/" +
                          std::to_string(4 * microbatches) + " of another, not 1/4"));
  }
}

// The first step writes a period twice: once before and once with the optimizer's state.
TEST(CustomWindows, RepeatingWindowsAreALoop) {
  const std::size_t some = TextSize(CustomJob("(i + 1) % 4 == 0", 40));
  EXPECT_LT(some, 400'000u);
  EXPECT_LT(TextSize(CustomJob("(i + 1) % 4 == 0", 400)), some + 100);  // digits only
  EXPECT_LT(TextSize(CustomJob("i % 2 == 0", 400)), some);
  EXPECT_LT(TextSize(CustomJob("(i + 1) % 4 == 0", 400, "(i + 1) % 8 == 0")), 2 * some);
}

TEST(CustomWindows, AProgramWithSuchLoopsIsTheOneWithoutThem) {
  for (const std::string strategy : {"ddp-last", "ddp-every", "fsdp2-defer", "fsdp1-no-sync", "deepspeed-zero0"}) {
    for (const std::string expression : {"(i + 1) % 4 == 0", "i % 2 == 0", "i % 3 == 0 or i == steps - 1"}) {
      for (const StepKind kind : {StepKind::first, StepKind::steady}) {
        Job job = CustomJob(expression, 17);
        job.strategy = strategy;
        job.axes = FindStrategy(strategy)->defaults.axes;
        job.axes.sync.when = Sync::When::custom;
        job.axes.sync.expression = expression;
        const Result<StepProgram> step = Lower(job, kind);
        ASSERT_TRUE(step.ok()) << strategy << step.error().Text();
        for (const Finding& finding : Verify(*step)) {
          EXPECT_TRUE(IsWrongResult(finding.rule)) << finding.message;
        }
        const std::vector<Costs> costs = PriceAll(*step, job.machine);
        EXPECT_EQ(Simulate(*step, costs), EvaluateClosedForm(*step, costs)) << strategy << " " << expression;
      }
    }
  }
}

/// Two windows in a row take twice the time of the work in one, and as much memory: nothing is left out or doubled.
TEST(CustomWindows, LoopsCoverEachMicrobatchOnce) {
  const Job job = CustomJob("(i + 1) % 4 == 0", 42);
  const Result<StepProgram> step = Lower(job, StepKind::steady);
  ASSERT_TRUE(step.ok());
  std::vector<std::int64_t> seen;
  const Program unrolled = Unroll(step->roles.front());
  std::int64_t updates = 0;
  for (const Node& node : unrolled.nodes) {
    const auto* begin = std::get_if<Begin>(&node);
    if (begin != nullptr && begin->phase == Phase::backward) {
      seen.push_back(begin->microbatch.offset);
    }
    updates += begin != nullptr && begin->phase == Phase::optimizer ? 1 : 0;
  }
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < 42; ++i) {
    all.push_back(i);
  }
  EXPECT_EQ(seen, all);
  EXPECT_EQ(updates, 10);
}

TEST(CustomWindows, WindowsThatDoNotRepeatAreRefusedWhereTheyAreMany) {
  EXPECT_TRUE(WindowsOf(CustomJob("i * i % 101 < 50", 100)).ok());
  const Result<std::vector<WindowRun>> irregular = WindowsOf(CustomJob("i * i * i % 1009 < 500", 5000));
  ASSERT_FALSE(irregular.ok());
  EXPECT_THAT(irregular.error().Text(), HasSubstr("sync.expression"));
  EXPECT_THAT(irregular.error().Text(), HasSubstr("would be written out one by one, more than 256"));
  const Result<std::vector<WindowRun>> many = WindowsOf(CustomJob("i % 2 == 0", 100'000));
  ASSERT_FALSE(many.ok());
  EXPECT_THAT(many.error().Text(), HasSubstr("at most 65,536 microbatches, not 100,000"));
}

}  // namespace
}  // namespace tidemark::custom_windows_test
