// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/engine/closed_form.h"
#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "tests/sim/dice.h"
#include "tests/sim/ledger.h"
#include "tests/sim/oracle_job.h"

// Expected values: the worked numbers of Colossal-AI's plugins for the oracle model (P = 110,633,984 parameters in
// bf16, N = 4, M = 4), read off colossalai/zero/low_level at 4f9953be and priced by hand; none was measured.

namespace tidemark::strategy_colossalai_test {
namespace {

constexpr std::int64_t kP = 221'267'968;  ///< bytes of the parameters

/// A loop that divides by another number than its windows have computes wrong numbers; nothing else may be found.
StepProgram Lowered(const Job& job, StepKind kind = StepKind::steady) {
  Result<StepProgram> step = Lower(job, kind);
  EXPECT_TRUE(step.ok()) << step.error().message;
  for (const Finding& finding : Verify(*step)) {
    EXPECT_TRUE(job.axes.sync.when == Sync::When::custom && finding.rule == Finding::Rule::wrong_factor)
        << finding.message;
  }
  return std::move(*step);
}

std::int64_t WireOf(const Job& job) {
  std::int64_t wire = 0;
  for (const CommunicationRow& row : CountCommunication(Lowered(job).roles.front())) {
    wire += row.wire.count();
  }
  return wire;
}

Ledger LedgerOf(const Job& job, StepKind kind = StepKind::steady) { return Audit(Lowered(job, kind), job.machine); }

std::vector<std::int64_t> PayloadsOf(const Job& job, CollectiveKind kind) {
  std::vector<std::int64_t> payloads;
  for (const Node& node : Unroll(Lowered(job).roles.front()).nodes) {
    if (const auto* collective = std::get_if<Collective>(&node); collective != nullptr && collective->kind == kind) {
      payloads.push_back(collective->payload_elements);
    }
  }
  return payloads;
}

/// Both engines on one job: the peak and its categories to the byte, the step to the nanosecond.
void ExpectEnginesAgree(const Job& job, StepKind kind) {
  const StepProgram step = Lowered(job, kind);
  const std::vector<Costs> costs = PriceAll(step, job.machine);
  const Evaluation closed = EvaluateClosedForm(step, costs);
  const Evaluation simulated = Simulate(step, costs);
  EXPECT_EQ(closed, simulated);
}

std::string Refusal(const std::string& strategy, void (*change)(Job&)) {
  Job job = OracleJob(strategy, 4);
  change(job);
  const Result<StepProgram> step = Lower(job, StepKind::steady);
  return step.ok() ? std::string() : step.error().where + ": " + step.error().message;
}

TEST(LowLevelZero, BucketsLeaveBeforeTheyWouldExceedTwelveMiElements) {
  const std::vector<std::int64_t> flushes{32'768'000, 11'275'264, 11'274'240, 11'274'240, 11'274'240, 32'768'000};
  EXPECT_EQ(PayloadsOf(OracleJob("colossalai-zero1", 4), CollectiveKind::all_reduce), flushes);
  EXPECT_EQ(PayloadsOf(OracleJob("colossalai-zero2", 1), CollectiveKind::reduce_scatter), flushes);
}

TEST(LowLevelZero, NoSyncReducesOnceAndGathersOnce) {
  EXPECT_EQ(WireOf(OracleJob("colossalai-zero1", 4)), 497'852'928);
}

TEST(LowLevelZero, StageTwoScattersInEveryMicrobatch) {
  EXPECT_EQ(WireOf(OracleJob("colossalai-zero2", 4)), 829'754'880);
}

TEST(LowLevelZero, StageOneWithoutNoSyncReducesInEveryMicrobatch) {
  Job job = OracleJob("colossalai-zero1", 4);
  job.axes.sync.when = Sync::When::every;
  // Four all-reduces of 2P (331,901,952 on the wire) and one all-gather of it (165,950,976).
  EXPECT_EQ(WireOf(job), 4 * 331'901'952 + 165'950'976);
}

TEST(LowLevelZero, StageOneKeepsWholeGradientsBetweenMicrobatches) {
  for (const Sync::When when : {Sync::When::last, Sync::When::every}) {
    Job job = OracleJob("colossalai-zero1", 4);
    job.axes.sync.when = when;
    const CategoryBytes between = LedgerOf(job).between_microbatches.at(2);
    EXPECT_EQ(between[Category::parameter].count(), 221'267'968);
    EXPECT_EQ(between[Category::optimizer].count(), 110'633'984 + 221'267'968);
    EXPECT_EQ(between[Category::gradient].count(), 221'267'968);
    EXPECT_EQ(between[Category::bucket].count(), 0);
    EXPECT_EQ(SystemBytes(between).count(), 774'437'888);
  }
}

TEST(LowLevelZero, StageTwoKeepsOneSliceBetweenMicrobatches) {
  const CategoryBytes between = LedgerOf(OracleJob("colossalai-zero2", 4)).between_microbatches.at(2);
  EXPECT_EQ(between[Category::gradient].count(), 55'316'992);
  EXPECT_EQ(between[Category::bucket].count(), 0);
  EXPECT_EQ(SystemBytes(between).count(), 608'486'912);
}

TEST(LowLevelZero, TheFirstStepsMomentsAppearInTheOptimizer) {
  const Ledger first = LedgerOf(OracleJob("colossalai-zero1", 2), StepKind::first);
  EXPECT_EQ(SystemBytes(first.at_window_end).count(), 774'437'888 - 221'267'968);
  EXPECT_EQ(SystemBytes(first.after_optimizer).count(), 774'437'888);
}

TEST(LowLevelZero, ABucketIsHeldTwiceWhileItIsReduced) {
  // Parameters, masters and moments: 553,169,920. Stage 1, the last flush: the store of all but the embedding
  // (155,731,968), the embedding's gradient and its flat copy (65,536,000 each).
  EXPECT_EQ(LedgerOf(OracleJob("colossalai-zero1", 1)).highest_system.count(), 553'169'920 + 155'731'968 + 131'072'000);
  // After microbatches in no_sync: all of .grad, and the head's new gradient or its flat copy.
  EXPECT_EQ(LedgerOf(OracleJob("colossalai-zero1", 4)).highest_system.count(), 553'169'920 + kP + 65'536'000);
  // Stage 2, the last flush: a quarter of all others (38,932,992), gradient and flat copy, the own part (16,384,000).
  EXPECT_EQ(LedgerOf(OracleJob("colossalai-zero2", 1)).highest_system.count(),
            553'169'920 + 38'932'992 + 131'072'000 + 16'384'000);
}

TEST(LowLevelZero, TheOwnGradientIsCastForTheStep) {
  Job job = OracleJob("colossalai-zero1", 4);
  job.axes.sync.bucket_elements = 1;  // nothing is collected for the gather, so the cast is the highest point
  const Ledger ledger = LedgerOf(job);
  EXPECT_EQ(ledger.highest_in_optimizer.count(), 774'437'888 + 110'633'984);
  EXPECT_EQ(SystemBytes(ledger.after_optimizer).count(), 774'437'888);
}

TEST(LowLevelZero, UpdatedPartsAreGatheredInBucketsOfParts) {
  // Parts of a quarter fill a bucket of 12 Mi elements: embedding, layer 0 and layer 1 up to its gate-up projection;
  // the rest up to the final norm; the head.
  const Job job = OracleJob("colossalai-zero1", 4);
  EXPECT_EQ(PayloadsOf(job, CollectiveKind::all_gather),
            (std::vector<std::int64_t>{46'665'728, 31'200'256, 32'768'000}));
  // Beside 774,437,888: the first bucket's parts and the one that no longer fits (13,108,224 elements), their flat copy
  // (11,666,432), the gathered buffer (46,665,728), and copies of the embedding and of the norm behind it (32,769,024).
  EXPECT_EQ(LedgerOf(job).highest_in_optimizer.count(),
            774'437'888 + 2 * (13'108'224 + 11'666'432 + 46'665'728 + 32'769'024));
}

TEST(LowLevelZero, AWiderWireCostsACastBuffer) {
  Job job = OracleJob("colossalai-zero1", 1);
  job.axes.precision.reduce = DType::fp32;  // communication_dtype
  EXPECT_EQ(WireOf(job), 2 * 331'901'952 + 165'950'976);
  // The embedding's flush: its gradient and, at the cast, flat bf16 and fp32 copies; then fp32 and what is stored.
  EXPECT_EQ(LedgerOf(job).highest_system.count(), 553'169'920 + 155'731'968 + 65'536'000 + 65'536'000 + 131'072'000);
}

/// Arrival order of one layer's gradients (elements), as PyTorch's hooks fire.
std::vector<std::int64_t> ArrivingElements(std::int64_t layers) {
  std::vector<std::int64_t> elements{32'768'000, 1'024};
  for (std::int64_t i = 0; i < layers; ++i) {
    elements.insert(elements.end(), {2'883'584, 5'767'168, 1'024, 1'048'576, 262'144, 262'144, 1'048'576, 1'024});
  }
  elements.push_back(32'768'000);
  return elements;
}

TEST(LowLevelZero, ManyLayersFlushAsAPlainWalkOverTheirGradientsDoes) {
  for (const std::int64_t limit :
       {1'000'000, 3'000'000, 5'767'168, 9'000'000, 11'274'240, 12'582'912, 20'000'000, 31'000'000, 400'000'000}) {
    Job job = OracleJob("colossalai-zero1", 1);
    std::get<Decoder>(job.network.shape).layers = 37;
    job.axes.sync.bucket_elements = limit;
    std::vector<std::int64_t> flushes;
    std::int64_t held = 0;
    for (const std::int64_t elements : ArrivingElements(37)) {
      if (held > 0 && held + elements > limit) {
        flushes.push_back(held);
        held = 0;
      }
      held += elements;
    }
    flushes.push_back(held);
    EXPECT_EQ(PayloadsOf(job, CollectiveKind::all_reduce), flushes) << limit;
    ExpectEnginesAgree(job, StepKind::steady);
  }
}

TEST(LowLevelZero, ProgramsOfManyLayersStaySmall) {
  Job job = OracleJob("colossalai-zero2", 8);
  const std::size_t few = Lowered(job).roles.front().nodes.size();
  std::get<Decoder>(job.network.shape).layers = 96;
  EXPECT_LT(Lowered(job).roles.front().nodes.size(), 4 * few);
}

TEST(LowLevelZero, WithoutOverlapStageOneReducesInDefinitionOrder) {
  // Layer 0 and the next layer's norm1 and wq (1,049,600); from wk to the one after next's wv (wo would exceed); from
  // wo to layer 3's norm2; its gate-up, down and the final norm.
  Job job = OracleJob("colossalai-zero1", 1);
  job.axes.sync.overlap = false;
  EXPECT_EQ(PayloadsOf(job, CollectiveKind::all_reduce),
            (std::vector<std::int64_t>{32'768'000, 12'323'840, 11'798'528, 12'323'840, 8'651'776, 32'768'000}));
  job = OracleJob("colossalai-zero2", 1);
  job.axes.sync.overlap = false;
  EXPECT_EQ(PayloadsOf(job, CollectiveKind::reduce_scatter).at(1), 11'275'264);
}

TEST(LowLevelZero, ParametersAreCutOneByOneAndPadded) {
  Job job = OracleJob("colossalai-zero2", 2);
  job.layout.dp = 3;
  // 3 divides neither 32,768,000 (remainder 2) nor any layer parameter but none: 1,024 and 1,048,576 and 262,144 leave
  // 1, 2,883,584 leaves 2, 5,767,168 leaves 1. Padding: 1 each for two tables, 2 for the final norm, and per layer
  // 2 (norms, wq, wo, wk, wv: six of them) + 1 (wd) + 2 (gate-up).
  const std::int64_t padded = 110'633'984 + 2 * 1 + 2 + 4 * (6 * 2 + 1 + 2);
  const CategoryBytes between = LedgerOf(job).between_microbatches.at(1);
  EXPECT_EQ(between[Category::parameter].count(), 2 * padded);
  EXPECT_EQ(between[Category::gradient].count(), 2 * padded / 3);
  EXPECT_EQ(between[Category::optimizer].count(), 12 * padded / 3);
}

TEST(LowLevelZero, OneRankCommunicatesNothing) {
  for (const char* const strategy : {"colossalai-zero1", "colossalai-zero2"}) {
    Job job = OracleJob(strategy, 2);
    job.layout.dp = 1;
    EXPECT_TRUE(CountCommunication(Lowered(job).roles.front()).empty());
    EXPECT_EQ(LedgerOf(job).at_window_end[Category::gradient].count(), kP);
  }
}

TEST(LowLevelZero, FrozenParametersHaveNoMasterAndAreNotGathered) {
  Job job = OracleJob("colossalai-zero1", 2);
  job.network.trainable = {"head.*"};
  EXPECT_EQ(LedgerOf(job).at_window_end[Category::optimizer].count(), 12 * 32'769'024 / 4);
  EXPECT_EQ(PayloadsOf(job, CollectiveKind::all_gather), (std::vector<std::int64_t>{32'769'024}));
}

/// Microbatches after which the optimizer steps.
std::vector<std::int64_t> StepsAt(const std::string& strategy, std::int64_t steps) {
  Job job = OracleJob(strategy, steps);
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = "i % (steps - 1) == 0";
  std::vector<std::int64_t> at;
  std::int64_t microbatch = -1;
  for (const Node& node : Unroll(Lowered(job).roles.front()).nodes) {
    if (const auto* begin = std::get_if<Begin>(&node)) {
      microbatch += begin->phase == Phase::backward ? 1 : 0;
      if (begin->phase == Phase::optimizer) {
        at.push_back(microbatch);
      }
    }
  }
  return at;
}

TEST(ColossalAi, TheDocumentedPredicateStepsAtZeroAndThenOneTooOften) {
  for (const char* const strategy : {"colossalai-ddp", "colossalai-zero1"}) {
    EXPECT_EQ(StepsAt(strategy, 2), (std::vector<std::int64_t>{0, 1}));
    EXPECT_EQ(StepsAt(strategy, 3), (std::vector<std::int64_t>{0, 2}));
    EXPECT_EQ(StepsAt(strategy, 4), (std::vector<std::int64_t>{0, 3}));
    EXPECT_EQ(StepsAt(strategy, 5), (std::vector<std::int64_t>{0, 4}));
  }
}

TEST(ColossalAi, TheDocumentedPredicateDividesByZeroForOneMicrobatch) {
  for (const char* const strategy : {"colossalai-ddp", "colossalai-zero1"}) {
    const std::string refusal = Refusal(strategy, [](Job& job) {
      job.accumulation_steps = 1;
      job.axes.sync.when = Sync::When::custom;
      job.axes.sync.expression = "i % (steps - 1) == 0";
    });
    EXPECT_NE(refusal.find("zero"), std::string::npos) << refusal;
    EXPECT_NE(refusal.find("where i is 0 and steps is 1"), std::string::npos) << refusal;
  }
}

TEST(ColossalAi, TorchDdpPluginIsDdpWithNoSync) {
  Job ddp = OracleJob("ddp-last", 4);
  const StepProgram expected = Lowered(ddp);
  const StepProgram actual = Lowered(OracleJob("colossalai-ddp", 4));
  EXPECT_EQ(Print(actual.roles.front()), Print(expected.roles.front()));
  EXPECT_EQ(WireOf(OracleJob("colossalai-ddp", 4)), 331'901'952);
}

TEST(ColossalAi, StageTwoRefusesNoSyncInThePluginsWords) {
  const auto last = [](Job& job) { job.axes.sync.when = Sync::When::last; };
  const std::string refusal = Refusal("colossalai-zero2", last);
  EXPECT_NE(refusal.find("The plugin LowLevelZeroPlugin_ZeRO-2 does not support no_sync."), std::string::npos);
  EXPECT_NE(refusal.find("ZeRO2(partition_grads) and no_sync are not compatible"), std::string::npos);
  EXPECT_NE(Refusal("colossalai-zero2",
                    [](Job& job) {
                      job.axes.sync.when = Sync::When::custom;
                      job.axes.sync.expression = "(i + 1) % steps == 0";
                    })
                .find("does not support no_sync"),
            std::string::npos);
  EXPECT_NE(Refusal("colossalai-zero2",
                    [](Job& job) {
                      job.axes.sync.when = Sync::When::last;
                      job.layout.tp = 2;
                    })
                .find("ZERO2 is not compatible with no_sync function"),
            std::string::npos);
}

TEST(ColossalAi, WhatThePluginsRefuseIsRefusedInTheirWords) {
  const auto pipeline = [](Job& job) { job.layout.pp = 2; };
  EXPECT_EQ(Refusal("colossalai-zero2", pipeline),
            "layout.pp: To avoid prohibitive gradient synchronization costs, zero stage must be 0 or 1 when using "
            "pipeline parallelism");
  EXPECT_NE(Refusal("colossalai-zero1", pipeline).find("layout.pp: pipelines of HybridParallelPlugin"),
            std::string::npos);
  EXPECT_NE(Refusal("colossalai-ddp", pipeline).find("layout.pp: TorchDDPPlugin has no pipelines"), std::string::npos);
  EXPECT_EQ(Refusal("colossalai-zero1",
                    [](Job& job) {
                      job.layout.tp = 2;
                      Precision& precision = job.axes.precision;
                      precision.params = precision.gradients = precision.reduce = precision.accumulate = DType::fp32;
                    }),
            "precision.params: HybridParallelPlugin: Please set precision to 'fp16' or 'bf16' when using ZeRO.");
  EXPECT_EQ(Refusal("colossalai-zero1", [](Job& job) { job.axes.shard.params = true; }),
            "shard.params: LowLevelZeroPlugin only supports stage 1/2 training");
}

TEST(ColossalAi, WhatTheOptimizerDoesNotDoIsRefusedWithItsKey) {
  const auto starts = [](const std::string& key, void (*change)(Job&)) {
    const std::string refusal = Refusal("colossalai-zero1", change);
    EXPECT_TRUE(refusal.starts_with(key + ": ")) << refusal;
  };
  starts("precision.accumulate", [](Job& job) { job.axes.precision.accumulate = DType::fp32; });
  starts("precision.gradients", [](Job& job) { job.axes.precision.gradients = DType::fp32; });
  starts("precision.master", [](Job& job) { job.axes.precision.master = DType::bf16; });
  starts("precision.optimizer", [](Job& job) { job.axes.precision.optimizer = DType::bf16; });
  starts("sync.collective", [](Job& job) { job.axes.sync.collective = CollectiveKind::reduce_scatter; });
  starts("shard.replicas", [](Job& job) { job.axes.shard.replicas = 2; });
  starts("shard.gradients", [](Job& job) { job.axes.shard.gradients = true; });
  starts("buffers.set_to_none", [](Job& job) { job.axes.buffers.set_to_none = false; });
  starts("sync.bucket_elements", [](Job& job) { job.axes.sync.bucket_elements = 0; });
  starts("sync.bucket_bytes", [](Job& job) { job.axes.sync.bucket_bytes = Bytes(1); });
  starts("sync.step_expression", [](Job& job) {
    job.axes.sync.when = Sync::When::custom;
    job.axes.sync.expression = "i == 0";
    job.axes.sync.step_expression = "i == 3";
  });
}

/// One of the settings that these strategies take.
Job RandomZeroJob(Dice& dice) {
  const bool two = dice.Number(0, 1) == 1;
  Job job = OracleJob(two ? "colossalai-zero2" : "colossalai-zero1", dice.Number(1, 6));
  Decoder& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = dice.Number(1, 12);
  decoder.tied_embeddings = dice.Number(0, 1) == 1;
  job.layout.dp = dice.Number(1, 5);
  job.layout.tp = dice.Number(1, 2);
  job.axes.sync.overlap = dice.Number(0, 1) == 1;
  job.axes.sync.bucket_elements = dice.Number(0, 40) * 1'000'000 + 1;
  job.axes.precision.reduce = dice.Number(0, 2) == 0 ? DType::fp32 : DType::bf16;
  job.optimizer = static_cast<OptimizerKind>(dice.Number(0, 2));
  if (dice.Number(0, 3) == 0) {
    job.axes.precision.master.reset();
    job.axes.precision.optimizer = DType::bf16;
  }
  const std::int64_t when = two ? 0 : dice.Number(0, 3);
  job.axes.sync.when = when == 0 ? Sync::When::every : when == 1 ? Sync::When::last : Sync::When::custom;
  if (when > 1) {
    job.axes.sync.expression = when == 2 ? "i % 3 != 1" : "i % 2 == 0";
    job.axes.sync.step_expression = when == 2 ? "i % 3 == 2 or i == 0" : "i % 4 == 0";
  }
  return job;
}

TEST(LowLevelZero, EveryVariantIsSoundAndBothEnginesAgreeOnIt) {
  Dice dice(20);
  for (std::int64_t i = 0; i < Rounds(300); ++i) {
    const Job job = RandomZeroJob(dice);
    SCOPED_TRACE(job.strategy + " layers " + std::to_string(std::get<Decoder>(job.network.shape).layers) + " dp " +
                 std::to_string(job.layout.dp) + " microbatches " + std::to_string(job.accumulation_steps) +
                 " bucket " + std::to_string(job.axes.sync.bucket_elements) + " " + job.axes.sync.expression);
    const auto kind = static_cast<StepKind>(i % 3);
    ExpectEnginesAgree(job, kind);
    if (::testing::Test::HasFailure()) {
      return;
    }
  }
}

}  // namespace
}  // namespace tidemark::strategy_colossalai_test
