// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/engine/closed_form.h"
#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "tests/sim/dice.h"
#include "tests/sim/ledger.h"
#include "tests/sim/oracle_job.h"

// Expected values are derived by hand from the order of events in colossalai/zero/gemini at 4f9953be; none was
// measured. The worked model has three chunks of C = 45,097,984 elements: 90,195,968 bytes whole, 22,548,992 a shard of
// four.

namespace tidemark::strategy_colossalai_gemini_test {
namespace {

constexpr std::int64_t kWhole = 90'195'968, kShard = 22'548'992;
constexpr std::int64_t kMasters = 135'293'952, kMoments = 270'587'904;  ///< fp32: 3 C / 4 elements, once and twice
constexpr std::int64_t kLargest = 65'536'000;                           ///< gradient of embedding or head

StepProgram Lowered(const Job& job, StepKind kind = StepKind::steady) {
  Result<StepProgram> step = Lower(job, kind);
  EXPECT_TRUE(step.ok()) << step.error().message;
  return std::move(*step);
}

StepProgram LoweredRight(const Job& job, StepKind kind = StepKind::steady) {
  StepProgram step = Lowered(job, kind);
  const std::vector<Finding> findings = Verify(step);
  EXPECT_TRUE(findings.empty()) << findings.front().message;
  return step;
}

Ledger LedgerOf(const Job& job, StepKind kind = StepKind::steady) {
  return Audit(LoweredRight(job, kind), job.machine);
}

struct Traffic {
  std::int64_t gathers = 0, gathered = 0, reduced = 0, wire = 0;
};

Traffic TrafficOf(const Job& job) {
  Traffic traffic;
  for (const CommunicationRow& row : CountCommunication(Lowered(job).roles.front())) {
    EXPECT_EQ(row.group, "dp");
    if (row.kind == "all_gather") {
      traffic.gathers += row.count;
      traffic.gathered += row.payload.count();
    } else {
      traffic.reduced += row.payload.count();
    }
    traffic.wire += row.wire.count();
  }
  return traffic;
}

/// 4 layers, and a vocabulary so small that all lies in one chunk below 32 Mi elements when `layers` is 1 or 2.
Job SmallJob(std::int64_t microbatches, std::int64_t layers) {
  Job job = OracleJob("colossalai-gemini", microbatches);
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = layers;
  decoder.vocabulary = 1000;
  return job;
}

// A table of two gathers per chunk and microbatch prices this at AG 270,587,904 x 8 + RS of the same x 4, 2,435,291,136
// bytes on the wire. It overlooks that StaticPlacementPolicy evicts chunks only when an operator with parameters comes:
// the next one after the head's forward is the head's backward, and `access_chunk` returns at once for a chunk in
// `accessed_chunks`. There is no setting that gives it up in between. So a microbatch gathers chunks 0, 1, 2 in its
// forward pass and 1, 0 in its backward pass, five and not six; over four microbatches that is 4 x 90,195,968 x 3/4 =
// 270,587,904 bytes less on the wire: (4 x 5 + 4 x 3) x 90,195,968 x 3/4.
TEST(Gemini, TheChunkOfTheLastForwardOperatorIsStillThereInBackward) {
  const Traffic traffic = TrafficOf(OracleJob("colossalai-gemini", 4));
  EXPECT_EQ(traffic.gathers, 20);
  EXPECT_EQ(traffic.gathered, 20 * kWhole);
  EXPECT_EQ(traffic.reduced, 4 * 270'587'904LL);
  EXPECT_EQ(traffic.wire, 2'164'703'232);
  EXPECT_EQ(2'435'291'136 - traffic.wire, 4 * kWhole * 3 / 4);
}

TEST(Gemini, ATiedHeadGathersTheEmbeddingsChunkASecondTime) {
  Job job = OracleJob("colossalai-gemini", 1);
  std::get<Decoder>(job.network.shape).tied_embeddings = true;
  LoweredRight(job);
  // Two chunks, a and b: forward a, b, and a for the head; backward a is there, b, a.
  EXPECT_EQ(TrafficOf(job).gathers, 5);
}

TEST(Gemini, BetweenMicrobatchesThereAreShardsOnly) {
  const CategoryBytes between = LedgerOf(OracleJob("colossalai-gemini", 4)).between_microbatches.at(2);
  EXPECT_EQ(between[Category::parameter].count(), 3 * kShard);
  EXPECT_EQ(between[Category::gradient].count(), 3 * kShard);
  EXPECT_EQ(between[Category::optimizer].count(), kMasters + kMoments);
  EXPECT_EQ(SystemBytes(between).count(), 541'175'808);
}

// In the hook on the embedding's gradient: its chunk (1 of 3) is whole, parameters and gradients, the others are
// shards; the gradient itself, and torch.empty_like of it.
TEST(Gemini, PeaksInTheHookOnTheEmbeddingsGradient) {
  const Ledger ledger = LedgerOf(OracleJob("colossalai-gemini", 4));
  EXPECT_EQ(ledger.highest_system.count(), kMasters + kMoments + 2 * (kWhole + 2 * kShard) + 2 * kLargest);
  EXPECT_EQ(ledger.highest_system.count(), 807'541'760);
}

// With embedding and head frozen there is one chunk of four layers: 45,096,960 elements in C = 45,097,984. Parameters
// and gradients whole, beside them in turn: when a later microbatch opens the chunk, the backup of 1/4 C and the
// gradient that came first, the last layer's down (2 x 2816 x 1024 bytes); in the hook on packed gate-up its gradient
// twice (23,068,672); when the chunk is reduced, the result of 1/4 C and the gradient that came last, norm1.
TEST(Gemini, OneChunkInBackwardIsHeldAsParametersAndAsGradients) {
  Job job = OracleJob("colossalai-gemini", 4);
  job.network.trainable = {"layer.*"};
  const std::int64_t frozen = 2 * 65'536'000 + 2048;  // embedding, head and final norm, on every rank
  const std::int64_t optimizer = 3 * 4 * 11'274'496LL;
  const Ledger ledger = LedgerOf(job);
  const std::int64_t open = kShard + 2 * 2816 * 1024, hook = 2 * 11'534'336, reduce = kShard + 2 * 1024;
  EXPECT_EQ(ledger.highest_system.count(), frozen + optimizer + 2 * kWhole + std::max({open, hook, reduce}));
}

TEST(Gemini, GradientShardsOutliveTheStepUntilTheirChunkOpensAgain) {
  const Ledger steady = LedgerOf(OracleJob("colossalai-gemini", 2));
  EXPECT_EQ(steady.between_microbatches.at(0)[Category::gradient].count(), 3 * kShard);
  EXPECT_EQ(steady.after_optimizer[Category::gradient].count(), 3 * kShard);
  EXPECT_EQ(steady.live, steady.between_microbatches.at(0));
  const Ledger first = LedgerOf(OracleJob("colossalai-gemini", 2), StepKind::first);
  EXPECT_EQ(first.between_microbatches.at(0)[Category::gradient].count(), 0);
  EXPECT_EQ(first.live, steady.live);
}

TEST(Gemini, TheFirstStepsMomentsAppearInTheOptimizer) {
  const Ledger first = LedgerOf(OracleJob("colossalai-gemini", 4), StepKind::first);
  EXPECT_EQ(first.at_window_end[Category::optimizer].count(), kMasters);
  EXPECT_EQ(first.after_optimizer[Category::optimizer].count(), kMasters + kMoments);
}

TEST(Gemini, ALaterMicrobatchBeginsItsChunkWithNTimesTheShard) {
  const std::string one = Print(Lowered(OracleJob("colossalai-gemini", 1)).roles.front());
  EXPECT_EQ(one.find("back up gradient"), std::string::npos);
  const std::string two = Print(Lowered(OracleJob("colossalai-gemini", 2)).roles.front());
  const std::size_t times = two.find("scale \"gradient times N\" \"accumulated gradient times N 2\" by 4 on compute");
  const std::size_t freed = two.find("free \"shard of gradient chunk 2\"", times);
  const std::size_t whole = two.find("alloc \"gradient chunk 2\"", freed);
  const std::size_t zeroed = two.find("zero gradient chunk", whole);
  const std::size_t added = two.find("own part reads \"accumulated gradient times N 2\", \"gradient chunk 2\"", zeroed);
  EXPECT_NE(added, std::string::npos);
  EXPECT_NE(two.find("by 1/4 on reduce", added), std::string::npos);
}

TEST(Gemini, WithoutAsyncReduceTheComputeStreamWaits) {
  Job job = OracleJob("colossalai-gemini", 4);
  const Evaluation async = Simulate(LoweredRight(job), PriceAll(Lowered(job), job.machine));
  job.axes.sync.overlap = false;
  const Evaluation sync = Simulate(LoweredRight(job), PriceAll(Lowered(job), job.machine));
  EXPECT_GT(sync.time.step, async.time.step);
  EXPECT_EQ(sync.roles, async.roles);
}

TEST(Gemini, OneRankCopiesWholeChunksInsteadOfCommunicating) {
  for (const std::int64_t microbatches : {1, 3}) {
    Job job = OracleJob("colossalai-gemini", microbatches);
    job.layout.dp = 1;
    const Ledger ledger = LedgerOf(job);
    EXPECT_EQ(TrafficOf(job).wire, 0);
    EXPECT_EQ(ledger.between_microbatches.at(0)[Category::parameter].count(), 3 * kWhole);
    // The head's chunk has 12,329,984 elements behind its one parameter, which have no moments: valid ranges only.
    EXPECT_EQ(ledger.after_optimizer[Category::optimizer].count(), 4 * 3 * 45'097'984LL + 8 * 110'633'984LL);
  }
}

TEST(Gemini, ASmallModelIsOneChunkThatIsAllReducedInPlace) {
  const Job job = SmallJob(1, 1);  // 1,000 x 1,024 twice, a layer of 11,274,240, a norm
  const std::int64_t elements = 2 * 1'024'000 + 11'274'240 + 1024;
  const Traffic traffic = TrafficOf(job);
  EXPECT_EQ(traffic.gathers, 0);
  EXPECT_EQ(traffic.reduced, 2 * elements);
  const CategoryBytes live = LedgerOf(job).live;
  EXPECT_EQ(live[Category::parameter].count(), 2 * elements);
  EXPECT_EQ(live[Category::gradient].count(), 2 * elements);
  EXPECT_EQ(live[Category::optimizer].count(), 12 * elements);
}

// All N ranks contribute the N-fold of what was accumulated, so the division by N leaves a factor N. That is what
// ChunkManager.rearrange_accumulated_grad_chunk does for a chunk with keep_gathered.
TEST(Gemini, AccumulatingInAKeptGatheredChunkIsDeclaredWrong) {
  const Result<Strategy> strategy = FindStrategy("colossalai-gemini");
  ASSERT_TRUE(strategy.ok());
  const Job job = SmallJob(2, 1);
  ASSERT_TRUE(strategy->DeclaredWrong(job).has_value());
  const std::vector<Finding> findings = Verify(Lowered(job));
  ASSERT_FALSE(findings.empty());
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.rule, Finding::Rule::wrong_factor) << finding.message;
  }
  // 1/(M N) = 1/8; the first microbatch's arrives N = 4 times as large.
  EXPECT_NE(findings.front().message.find("1/2"), std::string::npos) << findings.front().message;
  EXPECT_FALSE(strategy->DeclaredWrong(SmallJob(1, 1)).has_value());
  EXPECT_FALSE(strategy->DeclaredWrong(OracleJob("colossalai-gemini", 4)).has_value());
  Job alone = job;
  alone.layout.dp = 1;
  EXPECT_FALSE(strategy->DeclaredWrong(alone).has_value());
  LoweredRight(alone);
}

TEST(Gemini, AKeptGatheredChunkLeavesLayersAlike) {
  std::vector<std::size_t> nodes;
  for (const std::int64_t layers : {4, 5, 40}) {
    Job job = SmallJob(1, layers);
    job.axes.shard.min_chunk_elements = std::int64_t{1} << 40;
    nodes.push_back(LoweredRight(job).roles.front().nodes.size());
    EXPECT_EQ(TrafficOf(job).reduced, 2 * (2 * 1'024'000 + layers * 11'274'240 + 1024));
  }
  EXPECT_EQ(nodes[0], nodes[1]);
  EXPECT_EQ(nodes[0], nodes[2]);
}

TEST(Gemini, MastersAreCopiedToParametersAfterAllUpdates) {
  const std::string text = Print(Lowered(OracleJob("colossalai-gemini", 1)).roles.front());
  EXPECT_GT(text.find("parameters from masters"), text.rfind("optimizer update"));
  Job job = OracleJob("colossalai-gemini", 2);
  job.axes.precision.master.reset();
  EXPECT_EQ(LedgerOf(job).live[Category::optimizer].count(), kMoments);
}

std::string Refusal(void (*change)(Job&)) {
  Job job = OracleJob("colossalai-gemini", 4);
  change(job);
  const Result<StepProgram> step = Lower(job, StepKind::steady);
  return step.ok() ? std::string() : step.error().message;
}

TEST(Gemini, RefusesWhatThePluginRefuses) {
  const auto expect = [](void (*change)(Job&), const char* words) {
    EXPECT_NE(Refusal(change).find(words), std::string::npos) << Refusal(change);
  };
  expect([](Job& job) { job.axes.sync.when = Sync::When::last; }, "GeminiPlugin does not support no_sync");
  expect(
      [](Job& job) {
        job.axes.sync.when = Sync::When::custom;
        job.axes.sync.expression = "i % 2 == 1";
      },
      "GeminiPlugin does not support no_sync");
  expect([](Job& job) { job.layout.pp = 2; }, "Gemini is not compatible with pipeline");
  expect([](Job& job) { job.optimizer = OptimizerKind::sgd; }, "FusedAdam, CPUAdam, HybridAdam");
  expect([](Job& job) { job.axes.shard.chunk_elements = 1001; }, "divisible by the dp degree");
  expect([](Job& job) { job.axes.precision.params = DType::fp32; }, "fp16 and bf16 only");
  expect([](Job& job) { job.axes.precision.accumulate = DType::fp32; }, "accumulates in the gradient chunk itself");
  expect([](Job& job) { job.axes.precision.gradients = DType::fp32; }, "dtype of its parameter chunk");
  expect([](Job& job) { job.axes.precision.master = DType::fp64; }, "fp32 chunks");
  expect([](Job& job) { job.last_window = {LastWindow::Policy::drop, 2}; }, "only step() ends a window");
  expect([](Job& job) { job.axes.shard.params = false; }, "has no such setting");
  expect([](Job& job) { job.axes.shard.reshard_last_unit = true; }, "has no such setting");
  EXPECT_EQ(Refusal([](Job& job) { job.last_window = {LastWindow::Policy::rescaled, 2}; }), "");
}

Job RandomJob(Dice& dice) {
  Job job = OracleJob("colossalai-gemini", dice.Number(1, 4));
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = dice.Number(1, 7);
  decoder.hidden = 64;
  decoder.heads = 4;
  decoder.kv_heads = 2;
  decoder.head_size = 16;
  decoder.ffn = 2 * dice.Number(20, 120);
  decoder.vocabulary = 2 * dice.Number(50, 700);
  decoder.tied_embeddings = dice.OneIn(3);
  decoder.norm = dice.OneIn(2) ? Decoder::Norm::layer : Decoder::Norm::rms;
  decoder.qkv_bias = decoder.linear_bias = dice.OneIn(3);
  if (dice.OneIn(4)) {
    job.network.trainable = {"layer.w*", "layer.norm1"};
  }
  job.sequence_length = 16;
  job.layout.dp = dice.Number(1, 5);
  job.layout.tp = dice.Number(1, 2);
  job.axes.packing = {dice.OneIn(2), dice.OneIn(2)};
  job.axes.sync.overlap = dice.OneIn(2);
  job.axes.shard.min_chunk_elements = dice.Number(1, 60'000);
  job.axes.shard.chunk_elements = dice.OneIn(3) ? job.layout.dp * dice.Number(1, 20'000) : 0;
  return job;
}

TEST(Gemini, EveryJobIsWellFormedRightAndTheSameInBothEngines) {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Dice dice(seed);
    const Job job = RandomJob(dice);
    const auto kind = static_cast<StepKind>(dice.Roll(3));
    const StepProgram step = Lowered(job, kind);
    const bool wrong = FindStrategy(job.strategy)->DeclaredWrong(job).has_value();
    for (const Finding& finding : Verify(step)) {
      ASSERT_TRUE(wrong && IsWrongResult(finding.rule)) << seed << ": " << finding.message;
    }
    EXPECT_EQ(wrong, !Verify(step).empty()) << seed;
    const std::vector<Costs> costs = PriceAll(step, job.machine);
    ASSERT_EQ(Simulate(step, costs), EvaluateClosedForm(step, costs)) << seed;
  }
}

}  // namespace
}  // namespace tidemark::strategy_colossalai_gemini_test
