// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/program/verify.h"
#include "sim/program/verify_gradients.h"
#include "tests/sim/oracle_job.h"

namespace tidemark {
namespace {

using ::testing::HasSubstr;

JobAudit Audited(const Job& job, StepKind step = StepKind::steady) {
  const Result<JobAudit> audit = AuditJob(job, step);
  EXPECT_TRUE(audit.ok()) << audit.error().Text();
  return audit ? *audit : JobAudit{};
}

std::vector<Rational> FactorsOf(const JobAudit& audit) {
  std::vector<Rational> factors;
  for (const WindowFactor& window : audit.windows) {
    factors.push_back(window.factor);
  }
  return factors;
}

// 1/M by the loss and 1/N by whoever reduces: the verifier finds exactly 1 for whatever declares nothing.
TEST(Audit, EveryStrategyThatIsRightHasOneWindowOfFactorOne) {
  for (const Strategy& strategy : AllStrategies()) {
    Job job = OracleJob(strategy.defaults.name, 3);
    if (strategy.DeclaredWrong(job).has_value()) {
      continue;
    }
    job.axes.shard.replicas = strategy.Accept(job).ok() ? 1 : 2;  // HSDP has replicas
    for (const StepKind step : {StepKind::first, StepKind::steady}) {
      const JobAudit audit = Audited(job, step);
      EXPECT_TRUE(audit.hazards.empty()) << strategy.defaults.name;
      ASSERT_EQ(audit.windows.size(), 1u) << strategy.defaults.name;
      EXPECT_EQ(audit.windows[0].factor, Rational(1)) << strategy.defaults.name;
      EXPECT_TRUE(audit.windows[0].right()) << strategy.defaults.name;
    }
  }
}

TEST(Audit, EveryStrategyThatIsDeclaredWrongIsNotClean) {
  std::size_t wrong = 0;
  for (const Strategy& strategy : AllStrategies()) {
    const Job job = OracleJob(strategy.defaults.name, 3);
    if (strategy.DeclaredWrong(job).has_value()) {
      ++wrong;
      EXPECT_FALSE(Audited(job).clean()) << strategy.defaults.name;
    }
  }
  EXPECT_GE(wrong, 1u);
}

// DDP divides the gradient by N = 4, though each rank's surrogate already carries its part of the loss over all.
TEST(Audit, GradCacheWithoutTheFactorNHasAQuarterOfTheGradient) {
  const JobAudit audit = Audited(OracleJob("gradcache-unscaled", 3));
  EXPECT_EQ(FactorsOf(audit), std::vector<Rational>{Rational(1, 4)});
  EXPECT_TRUE(audit.windows[0].uniform);
  EXPECT_FALSE(audit.clean());
}

TEST(Audit, TheWorstStageDecides) {
  Job job = OracleJob("ddp-last", 4);
  job.layout.pp = 2;
  job.last_window = {LastWindow::Policy::not_rescaled, 3};
  EXPECT_EQ(FactorsOf(Audited(job)), std::vector<Rational>{Rational(3, 4)});
}

TEST(Audit, ALossOverAllTokensIsMeasuredByItsOwnScale) {
  for (const LossScale scale : {LossScale::microbatches, LossScale::global_tokens}) {
    Job job = OracleJob("ddp-last", 4);
    job.axes.sync.when = Sync::When::custom;
    job.axes.sync.expression = "i % (steps - 1) == 0";
    job.axes.loss_scale = scale;
    if (!FindStrategy(job.strategy)->Accept(job).ok()) {
      continue;
    }
    EXPECT_EQ(FactorsOf(Audited(job)),
              (std::vector<Rational>{Rational(1, 4), Rational(3, 4), Rational(3, 4), Rational(3, 4), Rational(1, 2)}));
  }
}

/// Two ways to the same number: evaluating the predicate, and following gradients through the program it makes.
TEST(Audit, ThePredicateAndTheProgramGiveTheSameFactors) {
  for (const char* expression :
       {"i % (steps - 1) == 0", "(i + 1) % steps == 0", "i == 2 or i == steps - 1", "i == 1"}) {
    Job job = OracleJob("ddp-last", 5);
    job.axes.sync.when = Sync::When::custom;
    job.axes.sync.expression = expression;
    const JobAudit audit = Audited(job);
    const Result<StepProgram> program = Lower(job, StepKind::steady);
    ASSERT_TRUE(program.ok());
    Findings unused(1000);
    const std::vector<WindowFactor> followed = CheckGradients(*program, unused);
    ASSERT_LE(followed.size(), audit.windows.size());
    for (std::size_t i = 0; i < followed.size() && followed[i].steps; ++i) {
      EXPECT_EQ(followed[i].microbatches, audit.windows[i].microbatches) << expression;
      EXPECT_EQ(followed[i].factor, audit.windows[i].factor) << expression;
      EXPECT_EQ(followed[i].uniform, audit.windows[i].uniform) << expression;
    }
  }
}

TEST(Audit, APredicateThatCannotBeEvaluatedIsALintAndLeavesTheStrategyItsSay) {
  Job job = OracleJob("ddp-last", 1);
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = "i % (steps - 1) == 0";
  const JobAudit audit = Audited(job);
  ASSERT_FALSE(audit.lints.empty());
  EXPECT_EQ(audit.lints.back().id, "boundary-fails");
  EXPECT_THAT(audit.lints.back().message, HasSubstr("sync.expression"));
  EXPECT_THAT(audit.lints.back().message, HasSubstr("divides by zero where i is 0 and steps is 1"));
  EXPECT_FALSE(audit.clean());
  EXPECT_EQ(WithPlainBoundary(job).axes.sync.expression, "(i + 1) % steps == 0");
  job.accumulation_steps = 4;
  EXPECT_EQ(WithPlainBoundary(job).axes.sync.expression, "i % (steps - 1) == 0");
}

}  // namespace
}  // namespace tidemark
