// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "base/rational_text.h"
#include "sim/program/verify.h"
#include "sim/program/verify_gradients.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::audit_test {
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
    Job job = OracleJob("fsdp2-defer", 4);
    job.axes.sync.when = Sync::When::custom;
    job.axes.sync.expression = "i % (steps - 1) == 0";
    job.axes.loss_scale = scale;
    const Status accepted = FindStrategy(job.strategy)->Accept(job);
    ASSERT_TRUE(accepted.ok()) << accepted.error().Text();
    EXPECT_EQ(FactorsOf(Audited(job)),
              (std::vector<Rational>{Rational(1, 4), Rational(3, 4), Rational(3, 4), Rational(3, 4), Rational(1, 2)}));
  }
}

/// Two ways to the same number: evaluating the predicate, and following gradients through the program it makes.
TEST(Audit, ThePredicateAndTheProgramGiveTheSameFactors) {
  const std::pair<const char*, const char*> predicates[] = {
      {"i % (steps - 1) == 0", ""},       {"(i + 1) % steps == 0", ""},
      {"i == 2 or i == steps - 1", ""},   {"i == 1", ""},
      {"i % 2 == 1", "i == 3 or i == 4"}, {"True", "(i + 1) % steps == 0"}};
  std::size_t strategies = 0, compared = 0;
  for (const Strategy& strategy : AllStrategies()) {
    bool accepts = false;
    for (const auto& [expression, step_expression] : predicates) {
      Job job = OracleJob(strategy.defaults.name, 5);
      if (auto* decoder = std::get_if<Decoder>(&job.network.shape)) {
        decoder->layers = 2;
      }
      job.axes.sync.when = Sync::When::custom;
      job.axes.sync.expression = expression;
      job.axes.sync.step_expression = step_expression;
      job.axes.shard.replicas = strategy.Accept(job).ok() ? job.axes.shard.replicas : 2;  // HSDP has replicas
      if (!strategy.Accept(job).ok()) {
        continue;
      }
      accepts = true;
      const std::string what = strategy.defaults.name + ": " + expression + " / " + step_expression;
      const JobAudit audit = Audited(job);
      const Result<StepProgram> program = Lower(job, StepKind::steady);
      ASSERT_TRUE(program.ok()) << what;
      Findings unused(1000);
      const std::vector<WindowFactor> followed = CheckGradients(*program, unused);
      ASSERT_FALSE(followed.empty()) << what;
      ASSERT_TRUE(followed.front().steps) << what;
      ASSERT_LE(followed.size(), audit.windows.size()) << what;
      for (std::size_t i = 0; i < followed.size() && followed[i].steps; ++i) {
        ++compared;
        EXPECT_EQ(followed[i].microbatches, audit.windows[i].microbatches) << what;
        EXPECT_EQ(followed[i].factor, audit.windows[i].factor)
            << what << ": " << Text(followed[i].factor) << ", " << Text(audit.windows[i].factor);
        EXPECT_EQ(followed[i].uniform, audit.windows[i].uniform) << what;
      }
    }
    strategies += accepts ? 1 : 0;
  }
  EXPECT_GE(strategies, 10u);
  EXPECT_GE(compared, 6 * strategies);
}

/// nanotron's first pool, in which two layers lose twelve values in a steady step (tests/cli/audit_test.py lists them).
StepProgram PoolProgram() {
  Job job = OracleJob("nanotron", 2);
  std::get<Decoder>(job.network.shape).layers = 2;
  job.layout.tp = 2;
  job.layout.sp = true;
  job.axes.buffers.tp_gather = Buffers::TpGather::pooled_unsafe;
  Result<StepProgram> program = Lower(job, StepKind::steady);
  EXPECT_TRUE(program.ok()) << program.error().Text();
  return *std::move(program);
}

TEST(Audit, AListOfHazardsThatIsCutSaysSo) {
  const StepProgram program = PoolProgram();
  for (const auto& [limit, left_out] : {std::pair(12, false), std::pair(11, true)}) {
    const Result<HazardList> list = FindAllHazards(program, true, static_cast<std::size_t>(limit));
    ASSERT_TRUE(list.ok());
    EXPECT_EQ(list->hazards.size(), static_cast<std::size_t>(limit));
    EXPECT_EQ(list->left_out, left_out) << limit;
  }
}

TEST(Audit, AListOfRacesThatIsCutSaysSo) {
  Job job = OracleJob("ddp-last", 2);
  std::get<Decoder>(job.network.shape).layers = 2;
  StepProgram program = *Lower(job, StepKind::steady);
  for (Node& node : program.roles.front().nodes) {
    if (auto* record = std::get_if<Record>(&node)) {
      record->stream = StreamId{0};  // says what the host has done, not what the stream has
    }
  }
  const Result<HazardList> all = FindAllHazards(program, true, 10'000);
  ASSERT_TRUE(all.ok()) << all.error().Text();
  ASSERT_GE(all->hazards.size(), 2u);
  EXPECT_FALSE(all->left_out);
  const std::size_t found = all->hazards.size();
  EXPECT_FALSE(FindAllHazards(program, true, found)->left_out);
  const Result<HazardList> cut = FindAllHazards(program, true, found - 1);
  EXPECT_EQ(cut->hazards.size(), found - 1);
  EXPECT_TRUE(cut->left_out);
}

TEST(Audit, AWrongGradientThatNothingDeclaresIsAFaultOfOurs) {
  const StepProgram program = *Lower(OracleJob("gradcache-unscaled", 3), StepKind::steady);
  EXPECT_TRUE(FindAllHazards(program, true, 10).ok());
  const Result<HazardList> fault = FindAllHazards(program, false, 10);
  ASSERT_FALSE(fault.ok());
  EXPECT_EQ(fault.error().code, ErrorCode::internal);
  EXPECT_THAT(fault.error().Text(), HasSubstr("please report"));
}

TEST(Audit, AMalformedProgramIsAFaultOfOurs) {
  Job job = OracleJob("ddp-last", 2);
  StepProgram program = *Lower(job, StepKind::steady);
  for (Node& node : program.roles.front().nodes) {
    if (std::holds_alternative<Free>(node)) {
      node = Begin{};
      break;
    }
  }
  const Result<HazardList> fault = FindAllHazards(program, true, 10);
  ASSERT_FALSE(fault.ok());
  EXPECT_EQ(fault.error().code, ErrorCode::internal);
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
}  // namespace tidemark::audit_test
