// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "models/job/validate.h"
#include "sim/engine/closed_form.h"
#include "sim/predict/lints.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "tests/sim/dice.h"
#include "tests/sim/ledger.h"
#include "tests/sim/oracle_job.h"

// Alpa beyond its worked numbers: the missing rewrite, refusals, many layers, and random settings.

namespace tidemark::strategy_alpa_settings_test {
namespace {

using Executable = Sync::Executable;

constexpr std::int64_t kP = 221'267'968;

StepProgram LowerJob(const Job& job, StepKind kind = StepKind::steady) {
  Result<StepProgram> step = Lower(job, kind);
  EXPECT_TRUE(step.ok()) << step.error().Text();
  return std::move(*step);
}

TEST(Alpa, SkippingWithoutTheRewriteIsDeclaredWrongAndFoundToBe) {
  for (const Executable executable : {Executable::skip_channels, Executable::two, Executable::branch}) {
    Job job = OracleJob("alpa", 4);
    job.axes.sync.executable = executable;
    job.axes.sync.rewrite = false;
    const Result<Strategy> strategy = FindStrategy("alpa");
    ASSERT_TRUE(strategy->DeclaredWrong(job).has_value());
    EXPECT_NE(std::string(strategy->DeclaredWrong(job)->reason).find("rewrite_for_grad_acc"), std::string::npos);
    const std::vector<Lint> lints = LintJob(job);
    ASSERT_FALSE(lints.empty());
    EXPECT_EQ(lints.front().id, "wrong-gradient");
    const std::vector<Finding> findings = Verify(LowerJob(job));
    ASSERT_FALSE(findings.empty());
    for (const Finding& finding : findings) {
      EXPECT_EQ(finding.rule, Finding::Rule::wrong_factor) << finding.message;
    }
    // Microbatches 0 to 2 hold this rank's own gradient alone, 1/(M N) = 1/16 of it.
    EXPECT_NE(findings.front().message.find("microbatches 0 to 2 arrives with factor 1/16 on behalf of this rank and "
                                            "0 of another, not 1/16"),
              std::string::npos)
        << findings.front().message;
    job.accumulation_steps = 1;
    EXPECT_FALSE(strategy->DeclaredWrong(job).has_value());
    EXPECT_TRUE(Verify(LowerJob(job)).empty());
    job.accumulation_steps = 4;
    job.layout.dp = 1;
    EXPECT_FALSE(strategy->DeclaredWrong(job).has_value());
    EXPECT_TRUE(Verify(LowerJob(job)).empty());
  }
}

// Gradients wait for their place behind the all-reduce: P more where nothing is copied.
TEST(Alpa, WithoutTheRewriteGradientsOfTheWholeMicrobatchAreKept) {
  Job job = OracleJob("alpa", 4);
  job.axes.sync.rewrite = false;
  job.axes.buffers.contiguous_gradients = false;
  EXPECT_EQ(Audit(LowerJob(job), job.machine).highest_system.count(), 5 * kP);
}

// The loss is the mean over all ranks: 1/N from the first kernel on. Collectives sum. 1/M stands in the update.
TEST(Alpa, DividesByRanksInTheLossAndByMicrobatchesInTheUpdate) {
  const Program program = Unroll(LowerJob(OracleJob("alpa", 3)).roles.front());
  std::int64_t in_loss = 0, in_update = 0;
  for (const Node& node : program.nodes) {
    if (const auto* compute = std::get_if<Compute>(&node)) {
      EXPECT_TRUE(compute->scale == Rational(1) || compute->scale == Rational(1, 4) ||
                  compute->scale == Rational(1, 3));
      in_loss += compute->scale == Rational(1, 4) ? 1 : 0;
      in_update += compute->scale == Rational(1, 3) ? 1 : 0;
    } else if (const auto* collective = std::get_if<Collective>(&node)) {
      EXPECT_EQ(collective->reduction, Reduction::sum);
      EXPECT_EQ(collective->scale, Rational(1));
    }
  }
  EXPECT_EQ(in_loss, 3);
  EXPECT_EQ(in_update, 35);  // parameters: 8 in each of 4 layers, embedding, norm, head
}

// A step without donation ends with the buffers that the next one begins with.
TEST(Alpa, StepsFollowOneAnotherWithoutDonation) {
  for (const char* name : {"alpa", "alpa-style1", "alpa-style2", "jax-scan"}) {
    Job job = OracleJob(name, 3);
    job.axes.buffers.donate = false;
    const StepProgram step = LowerJob(job);
    for (const Buffer& buffer : step.roles.front().buffers) {
      EXPECT_EQ(buffer.resident, buffer.kept) << name << ": " << buffer.name;
    }
  }
}

TEST(Alpa, ProgramsDoNotGrowWithLayersOrMicrobatches) {
  const auto nodes = [](const char* name, std::int64_t layers, std::int64_t microbatches, bool donate) {
    Job job = OracleJob(name, microbatches);
    std::get<Decoder>(job.network.shape).layers = layers;
    job.axes.buffers.donate = donate;
    return LowerJob(job).roles.front().nodes.size();
  };
  for (const char* name : {"alpa", "alpa-style1", "alpa-style2", "alpa-zero2"}) {
    for (const bool donate : {false, true}) {
      EXPECT_EQ(nodes(name, 30, 30, donate), nodes(name, 40, 45, donate)) << name;
    }
  }
}

std::string Refusal(const char* name, void (*change)(Job&)) {
  Job job = OracleJob(name, 4);
  change(job);
  const Status accepted = FindStrategy(name)->Accept(job);
  return accepted.ok() ? std::string() : accepted.error().Text();
}

TEST(Alpa, RefusesWhatItCannotDo) {
  const auto says = [](const char* name, void (*change)(Job&), const char* text) {
    EXPECT_NE(Refusal(name, change).find(text), std::string::npos) << Refusal(name, change);
  };
  says(
      "alpa", [](Job& job) { job.axes.sync.when = Sync::When::every; }, "XLA_SKIP_NCCL_COLLECTIVE_IDS");
  says(
      "alpa", [](Job& job) { job.axes.loop = MicrobatchLoop::unrolled; }, "alpa-style2");
  says(
      "alpa", [](Job& job) { job.axes.loop = MicrobatchLoop::program; }, "cannot change executables");
  says(
      "alpa",
      [](Job& job) {
        job.axes.loop = MicrobatchLoop::program;
        job.axes.sync.executable = Executable::branch;
        job.layout.pp = 2;
      },
      "a loop inside the program has no pipeline");
  says(
      "alpa",
      [](Job& job) {
        job.axes.sync.executable = Executable::two;
        job.layout.pp = 2;
      },
      "the schedule's last backward");
  says(
      "alpa",
      [](Job& job) {
        job.axes.sync.executable = Executable::separate;
        job.axes.sync.rewrite = false;
      },
      "nothing to rewrite");
  says(
      "alpa", [](Job& job) { job.axes.shard.optimizer = true; }, "Zero2Parallel");
  says(
      "alpa", [](Job& job) { job.axes.precision.accumulate = DType::fp32; }, "never cast up");
  says(
      "alpa", [](Job& job) { job.axes.precision.master = DType::fp32; }, "precision.master");
  says(
      "alpa", [](Job& job) { job.axes.precision.reduce = DType::fp32; }, "precision.reduce");
  says(
      "alpa", [](Job& job) { job.axes.precision.gradients = DType::fp32; }, "precision.gradients");
  says(
      "alpa",
      [](Job& job) {
        job.last_window = {LastWindow::Policy::rescaled, 2};
      },
      "num_micro_batches");
  says(
      "alpa-style1", [](Job& job) { job.layout.pp = 2; }, "pipeline stages");
  says(
      "alpa-style1", [](Job& job) { job.axes.sync.when = Sync::When::last; }, "sync.when");
  says(
      "alpa-style2", [](Job& job) { job.axes.sync.rewrite = false; }, "sync.rewrite");
  says(
      "ddp-last", [](Job& job) { job.axes.buffers.donate = false; }, "buffers.donate");
}

Job RandomJob(Dice& dice) {
  constexpr const char* kNames[] = {"alpa", "alpa", "alpa", "alpa-style1", "alpa-style2", "alpa-zero2"};
  while (true) {
    Job job = OracleJob(kNames[dice.Roll(std::size(kNames))], dice.Number(1, 5));
    auto& decoder = std::get<Decoder>(job.network.shape);
    decoder.layers = dice.Number(1, 9);
    decoder.hidden = 64;
    decoder.ffn = dice.Number(16, 90);
    decoder.heads = decoder.kv_heads = 4;
    decoder.head_size = 16;
    decoder.vocabulary = dice.Number(10, 300);
    decoder.tied_embeddings = dice.OneIn(3);
    job.sequence_length = 16;
    job.layout.dp = dice.Number(1, 5);
    job.layout.pp = dice.OneIn(4) && decoder.layers % 2 == 0 ? 2 : 1;
    job.optimizer = static_cast<OptimizerKind>(dice.Roll(3));
    if (dice.OneIn(5)) {
      job.network.trainable = {"layer.*"};
    }
    Axes& axes = job.axes;
    axes.buffers.donate = !dice.OneIn(3);
    axes.buffers.contiguous_gradients = !dice.OneIn(3);
    if (dice.OneIn(2)) {
      axes.sync.bucket_bytes = Bytes(dice.Number(100, 60000));
    }
    if (job.strategy == "alpa" || job.strategy == "alpa-zero2") {
      axes.sync.executable = static_cast<Executable>(dice.Roll(4));
      axes.loop = dice.OneIn(3) ? MicrobatchLoop::program : MicrobatchLoop::runtime;
      axes.sync.rewrite = !dice.OneIn(4);
    }
    if (Validate(job).ok() && FindStrategy(job.strategy)->Accept(job).ok()) {
      return job;
    }
  }
}

TEST(Alpa, EnginesAgreeAndNumbersAreAsDeclaredOverRandomSettings) {
  Dice dice(72);
  for (int i = 0; i < Rounds(400); ++i) {
    const Job job = RandomJob(dice);
    const StepProgram step = LowerJob(job, static_cast<StepKind>(i % 3));
    const std::vector<Costs> costs = PriceAll(step, job.machine);
    const Evaluation simulated = Simulate(step, costs), closed = EvaluateClosedForm(step, costs);
    ASSERT_EQ(simulated, closed) << i << job.strategy;
    const bool wrong = FindStrategy(job.strategy)->DeclaredWrong(job).has_value();
    const std::vector<Finding> findings = Verify(step);
    ASSERT_EQ(wrong, !findings.empty()) << i << " " << job.strategy
                                        << (findings.empty() ? "" : findings.front().message);
    for (const Finding& finding : findings) {
      ASSERT_TRUE(IsWrongResult(finding.rule)) << finding.message;
    }
  }
}

}  // namespace
}  // namespace tidemark::strategy_alpa_settings_test
