// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "models/job/validate.h"
#include "sim/engine/closed_form.h"
#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/dice.h"
#include "tests/sim/oracle_job.h"

// Memory is counted by hand in units of P, the bytes of the parameters: parameters P, two bf16 moments 2 P, and what
// accumulation adds.

namespace tidemark::strategy_jax_test {
namespace {

constexpr std::int64_t kP = 221'267'968;
constexpr std::int64_t kLargestGradient = 65'536'000;  // the head's, and the embedding's

std::int64_t WireBytesOf(const Job& job) {
  const std::vector<CommunicationRow> rows = CountCommunication(Sound(job).roles.front());
  return rows.empty() ? 0 : rows.front().wire.count();
}

std::int64_t CountNamed(const Job& job, const std::string& name) {
  const Program program = Unroll(Sound(job).roles.front());
  return std::count_if(program.nodes.begin(), program.nodes.end(), [&](const Node& node) {
    const auto* compute = std::get_if<Compute>(&node);
    return compute != nullptr && program.names[compute->name.index] == name;
  });
}

// optax issues 320, 472 and 528: a buffer as large as the parameters, for ever.
TEST(JaxMultiSteps, TheMeanGradientIsOneMoreTreeThatIsAlwaysThere) {
  for (const StepKind kind : {StepKind::first, StepKind::steady}) {
    const Ledger ledger = BookOf(OracleJob("jax-multisteps", 4), kind);
    for (const CategoryBytes& live : ledger.between_microbatches) {
      EXPECT_EQ(SystemBytes(live).count(), 4 * kP);
      EXPECT_EQ(live[Category::accumulator].count(), kP);
    }
    EXPECT_EQ(ledger.after_optimizer[Category::accumulator].count(), kP);
    EXPECT_EQ(ledger.highest_system.count(), 5 * kP);  // and the gradients of one microbatch
  }
}

// Before PR 596 a conditional returned zeros as updates, beside the gradients it was given.
TEST(JaxMultiSteps, MidUpdatesAreASecondTree) {
  Job job = OracleJob("jax-multisteps", 4);
  job.axes.buffers.mid_updates = true;
  const Ledger ledger = BookOf(job);
  EXPECT_EQ(ledger.highest_system.count(), 6 * kP);
  EXPECT_EQ(SystemBytes(ledger.between_microbatches.at(2)).count(), 4 * kP);
  EXPECT_EQ(CountNamed(job, "masked optimizer update"), 0);
  // The network has 35 parameters: 8 in each of 4 layers, embedding, norm and head.
  EXPECT_EQ(CountNamed(job, "zero update"), 3 * 35);
  EXPECT_EQ(CountNamed(job, "apply update"), 4 * 35);
}

// Since then the inner optimizer runs in every microbatch, and its result is thrown away in all but the last.
TEST(JaxMultiSteps, TheInnerOptimizerRunsInEveryMicrobatchAndIsMasked) {
  const Job job = OracleJob("jax-multisteps", 4);
  const std::int64_t blocks = 6;  // embedding, 4 layers, head with its norm
  EXPECT_EQ(CountNamed(job, "optimizer update"), blocks);
  EXPECT_EQ(CountNamed(job, "masked optimizer update"), 3 * blocks);
}

TEST(JaxMultiSteps, EveryMicrobatchIsAStepThatAllReduces) {
  const Job job = OracleJob("jax-multisteps", 4);
  EXPECT_EQ(WireBytesOf(job), 1'327'607'808);  // as DDP without no_sync
  EXPECT_EQ(CountNamed(job, "launch train_step"), 4);
}

TEST(JaxMultiSteps, TheAccumulatorsDtypeIsASetting) {
  Job job = OracleJob("jax-multisteps", 4);
  job.axes.precision.accumulate = DType::fp32;
  EXPECT_EQ(BookOf(job).at_window_end[Category::accumulator].count(), 2 * kP);
}

TEST(JaxScan, TheRunningSumIsReducedOnceBehindTheLoop) {
  const Job job = OracleJob("jax-scan", 4);
  EXPECT_EQ(WireBytesOf(job), 331'901'952);
  EXPECT_EQ(CountNamed(job, "launch train_step"), 1);
  const Ledger ledger = BookOf(job);
  for (std::size_t i = 1; i < 4; ++i) {
    EXPECT_EQ(SystemBytes(ledger.between_microbatches.at(i)).count(), 4 * kP);
  }
  EXPECT_EQ(ledger.highest_system.count(), 4 * kP + kLargestGradient);
  EXPECT_EQ(SystemBytes(ledger.after_optimizer).count(), 3 * kP);
}

TEST(JaxScan, WithoutTheCodeMotionItIsReducedInEveryMicrobatch) {
  Job job = OracleJob("jax-scan", 4);
  job.axes.sync.when = Sync::When::every;
  EXPECT_EQ(WireBytesOf(job), 1'327'607'808);
  EXPECT_EQ(BookOf(job).highest_system.count(), 5 * kP);
}

// marin issue 6532: about P more for each microbatch, M P b in the end.
TEST(JaxScan, StackedGradientsGrowWithTheMicrobatches) {
  for (const std::int64_t microbatches : {1, 2, 4, 8}) {
    const Ledger ledger = BookOf(OracleJob("jax-scan-stacked", microbatches));
    for (std::int64_t i = 0; i < microbatches; ++i) {
      EXPECT_EQ(SystemBytes(ledger.between_microbatches.at(static_cast<std::size_t>(i))).count(), (3 + i) * kP);
    }
    // The first sum, of the embedding, stands beside the whole stack.
    EXPECT_EQ(ledger.highest_system.count(), (3 + microbatches) * kP + kLargestGradient);
    EXPECT_EQ(SystemBytes(ledger.at_window_end).count(), 4 * kP);
  }
}

TEST(JaxScan, WithoutDonationTheNewStateStandsBesideTheOldOne) {
  Job job = OracleJob("jax-scan", 4);
  job.axes.buffers.donate = false;
  const Ledger ledger = BookOf(job);
  EXPECT_EQ(ledger.highest_system.count(), 7 * kP + kLargestGradient);
  EXPECT_EQ(SystemBytes(ledger.after_optimizer).count(), 3 * kP);
}

TEST(Jax, ProgramsDoNotGrowWithLayersOrMicrobatches) {
  const auto nodes = [](const char* name, std::int64_t layers, std::int64_t microbatches) {
    Job job = OracleJob(name, microbatches);
    job.axes.sync.bucket_bytes = Bytes(std::int64_t{1} << 60);
    std::get<Decoder>(job.network.shape).layers = layers;
    return Sound(job).roles.front().nodes.size();
  };
  for (const char* name : {"jax-multisteps", "jax-scan", "jax-scan-stacked"}) {
    EXPECT_EQ(nodes(name, 30, 30), nodes(name, 40, 45)) << name;
  }
}

TEST(Jax, RefusesWhatItCannotDo) {
  const auto says = [](const char* name, void (*change)(Job&), const char* text) {
    Job job = OracleJob(name, 4);
    change(job);
    const Status accepted = FindStrategy(name)->Accept(job);
    ASSERT_FALSE(accepted.ok()) << text;
    EXPECT_NE(accepted.error().Text().find(text), std::string::npos) << accepted.error().Text();
  };
  for (const char* name : {"jax-multisteps", "jax-scan", "jax-scan-stacked"}) {
    says(
        name, [](Job& job) { job.layout.pp = 2; }, "no pipeline stages");
    says(
        name,
        [](Job& job) {
          job.last_window = {LastWindow::Policy::drop, 2};
        },
        "waits for the next epoch");
    says(
        name, [](Job& job) { job.axes.precision.master = DType::fp32; }, "precision.master");
    says(
        name, [](Job& job) { job.axes.precision.reduce = DType::fp32; }, "precision.reduce");
    says(
        name, [](Job& job) { job.axes.precision.gradients = DType::fp32; }, "precision.gradients");
  }
  says(
      "jax-multisteps", [](Job& job) { job.axes.sync.when = Sync::When::last; }, "has no such setting");
  says(
      "jax-scan-stacked", [](Job& job) { job.axes.sync.when = Sync::When::last; }, "feeds a running sum");
  says(
      "jax-scan", [](Job& job) { job.axes.precision.accumulate = DType::fp32; }, "a sum of its own dtype");
}

Job RandomJob(Dice& dice) {
  constexpr const char* kNames[] = {"jax-multisteps", "jax-scan", "jax-scan-stacked"};
  while (true) {
    Job job = OracleJob(kNames[dice.Roll(std::size(kNames))], dice.Number(1, 6));
    auto& decoder = std::get<Decoder>(job.network.shape);
    decoder.layers = dice.Number(1, 9);
    decoder.hidden = 64;
    decoder.ffn = dice.Number(16, 90);
    decoder.heads = decoder.kv_heads = 4;
    decoder.head_size = 16;
    decoder.vocabulary = 2 * dice.Number(10, 150);
    decoder.tied_embeddings = dice.OneIn(3);
    job.sequence_length = 16;
    job.layout.dp = dice.Number(1, 5);
    job.layout.tp = dice.OneIn(4) ? 2 : 1;
    job.optimizer = static_cast<OptimizerKind>(dice.Roll(3));
    if (dice.OneIn(5)) {
      job.network.trainable = {dice.OneIn(2) ? "layer.*" : "head.*"};
    }
    Axes& axes = job.axes;
    axes.buffers.donate = !dice.OneIn(3);
    axes.buffers.mid_updates = dice.OneIn(4);
    axes.sync.when = dice.OneIn(2) ? Sync::When::every : Sync::When::last;
    axes.precision.accumulate = dice.OneIn(4) ? DType::fp32 : DType::bf16;
    axes.sync.bucket_bytes = Bytes(dice.Number(100, 90000));
    if (Validate(job).ok() && FindStrategy(job.strategy)->Accept(job).ok()) {
      return job;
    }
  }
}

TEST(Jax, EnginesAgreeAndGradientsAreMeansOverRandomSettings) {
  Dice dice(596);
  for (int i = 0; i < Rounds(300); ++i) {
    const Job job = RandomJob(dice);
    const StepProgram step = Sound(job, static_cast<StepKind>(i % 3));
    const std::vector<Costs> costs = PriceAll(step, job.machine);
    ASSERT_EQ(Simulate(step, costs), EvaluateClosedForm(step, costs)) << i << job.strategy;
    const std::vector<Finding> findings = Verify(step);
    ASSERT_TRUE(findings.empty()) << i << " " << job.strategy << ": " << findings.front().message;
  }
}

}  // namespace
}  // namespace tidemark::strategy_jax_test
