// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/engine/closed_form.h"
#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "sim/strategies/deepspeed/zero3_bucket.h"
#include "sim/strategies/deepspeed/zero3_fetch.h"
#include "tests/base/sanitizer.h"
#include "tests/sim/dice.h"
#include "tests/sim/ledger.h"
#include "tests/sim/oracle_job.h"

// The worked numbers are those of the model of oracle_job.h, P = 110,633,984 parameters, N = 4 ranks, M = 4
// microbatches, bf16 parameters, gradients and wire, fp32 masters and Adam.

namespace tidemark::strategy_deepspeed_zero3_test {
namespace {

constexpr std::int64_t kP = 110'633'984;

template <class Value>
Value Pick(Dice& dice, const std::vector<Value>& values) {
  return values[dice.Roll(values.size())];
}

/// Every parameter is fetched for every module that uses it, and for nothing else.
void FetchWithoutMercy(Job& job) {
  Shard& shard = job.axes.shard;
  shard.reuse_distance = shard.persistence_threshold = shard.prefetch_elements = 0;
}

Job BareJob(std::int64_t microbatches) {
  Job job = OracleJob("deepspeed-zero3", microbatches);
  FetchWithoutMercy(job);
  return job;
}

StepProgram LowerSound(const Job& job, StepKind kind) {
  Result<StepProgram> step = Lower(job, kind);
  EXPECT_TRUE(step.ok()) << (step.ok() ? "" : step.error().message);
  if (!step.ok()) {
    return {};
  }
  const std::vector<Finding> findings = Verify(*step, 3);
  for (const Finding& finding : findings) {
    ADD_FAILURE() << finding.message;
  }
  return std::move(*step);
}

void ExpectEnginesAgree(const StepProgram& step, const Machine& machine) {
  const std::vector<Costs> costs = PriceAll(step, machine);
  EXPECT_EQ(EvaluateClosedForm(step, costs), Simulate(step, costs));
}

Ledger LedgerOf(const Job& job, StepKind kind = StepKind::steady) { return Audit(LowerSound(job, kind), job.machine); }

struct Traffic {
  std::int64_t gathers = 0, gathered = 0, scatters = 0, scattered = 0, wire = 0;
};

Traffic TrafficOf(const Job& job, StepKind kind = StepKind::steady) {
  Traffic traffic;
  for (const CommunicationRow& row : CountCommunication(LowerSound(job, kind).roles.front())) {
    EXPECT_EQ(row.group, "dp");
    const bool gathers = row.kind == "all_gather";
    (gathers ? traffic.gathers : traffic.scatters) += row.count;
    (gathers ? traffic.gathered : traffic.scattered) += row.payload.count();
    traffic.wire += row.wire.count();
  }
  return traffic;
}

TEST(DeepSpeedZero3, WithoutReuseParametersAreGatheredTwiceAndGradientsScatteredOnceAMicrobatch) {
  const Traffic traffic = TrafficOf(BareJob(4));
  EXPECT_EQ(traffic.gathered, 8 * 2 * kP);
  EXPECT_EQ(traffic.scattered, 4 * 2 * kP);
  EXPECT_EQ(traffic.wire, 1'991'411'712);
}

TEST(DeepSpeedZero3, WithItsDefaultsAModelUnderABillionElementsIsGatheredOnceAMicrobatch) {
  // Norm weights, 9 of 1,024 elements, are under the persistence threshold of 100,000: gathered once, after the step.
  const Traffic traffic = TrafficOf(OracleJob("deepspeed-zero3", 4));
  EXPECT_EQ(traffic.gathered, 4 * 2 * (kP - 9 * 1024) + 2 * 9 * 1024);
  EXPECT_EQ(traffic.scattered, 4 * 2 * kP);
}

TEST(DeepSpeedZero3, BetweenMicrobatchesItHoldsPartitionsAndTheBucket) {
  Job job = BareJob(4);
  job.axes.precision.accumulate = DType::fp32;
  const CategoryBytes between = LedgerOf(job).between_microbatches.at(2);
  EXPECT_EQ(between[Category::parameter].count(), 55'316'992);
  EXPECT_EQ(between[Category::optimizer].count(), 110'633'984 + 221'267'968);
  EXPECT_EQ(between[Category::accumulator].count(), 110'633'984);
  EXPECT_EQ(between[Category::bucket].count(), 1'000'000'000);
  EXPECT_EQ(SystemBytes(between).count(), 1'497'852'928);
}

TEST(DeepSpeedZero3, GradientsAccumulateInTheModelsDtypeByDefault) {
  EXPECT_EQ(LedgerOf(BareJob(4)).between_microbatches.at(2)[Category::gradient].count(), 2 * kP / 4);
}

TEST(DeepSpeedZero3, PersistentParametersStayWhole) {
  Job job = OracleJob("deepspeed-zero3", 4);
  const CategoryBytes between = LedgerOf(job).between_microbatches.at(2);
  EXPECT_EQ(between[Category::parameter].count(), 55'316'992 + 2 * 9 * 1024);
}

TEST(DeepSpeedZero3, ReusedParametersAreAllThereWhenTheForwardPassEnds) {
  // All 110,633,984 elements are within the reuse distance of 1e9, so nothing is released before its backward pass.
  const Job job = OracleJob("deepspeed-zero3", 1);
  const Ledger ledger = LedgerOf(job);
  // Partitions, masters and moments, gradient partitions (bf16), bucket, and every parameter. Behind the embedding the
  // prefetch takes parameters until it has 5e7 elements, which the head's 32,768,000 exceed: all but the embedding and
  // the persistent norms come in one message, whose flat result is there until the last of them is copied out of it.
  const std::int64_t flat = 2 * (kP - 32'768'000 - 9 * 1024);
  EXPECT_EQ(ledger.highest_before_backward.count(),
            55'316'992 + 331'901'952 + 55'316'992 + 1'000'000'000 + 2 * kP + flat);
}

TEST(DeepSpeedZero3, TheFlushInterleavesTheWholeBucket) {
  // One flush a microbatch: P is under 5e8. It takes a second buffer of P in bf16, this rank's part among it. By then
  // every parameter but the embedding has been released: DeepSpeed hears of no gradient of its input, and releases it
  // after the epilogue.
  const Ledger ledger = LedgerOf(BareJob(1));
  const std::int64_t resident = 55'316'992 + 331'901'952 + 55'316'992 + 1'000'000'000;
  EXPECT_EQ(ledger.highest_system.count(), resident + 2 * kP + 2 * 32'768'000);
}

TEST(DeepSpeedZero3, WideningAddsThisRanksPartBesideTheInterleavedBuffer) {
  Job job = BareJob(1);
  job.axes.precision.accumulate = DType::fp32;
  const std::int64_t resident = 55'316'992 + 331'901'952 + 110'633'984 + 1'000'000'000;
  EXPECT_EQ(LedgerOf(job).highest_system.count(), resident + 2 * kP + 2 * 32'768'000 + 4 * kP / 4);
}

TEST(DeepSpeedZero3, TheStepJoinsGradientsAndCastsThemToFp32) {
  const std::int64_t resident = 55'316'992 + 331'901'952 + 55'316'992 + 1'000'000'000;
  // P / N in bf16 and P / N in fp32 together.
  EXPECT_EQ(LedgerOf(BareJob(2)).highest_in_optimizer.count(), resident + 2 * kP / 4 + 4 * kP / 4);
  Job wide = BareJob(2);
  wide.axes.precision.accumulate = DType::fp32;
  EXPECT_EQ(LedgerOf(wide).highest_in_optimizer.count(), resident + 2 * kP / 4 + 4 * kP / 4);
}

TEST(DeepSpeedZero3, MomentsAppearInTheFirstUpdate) {
  const Ledger ledger = LedgerOf(BareJob(2), StepKind::first);
  EXPECT_EQ(ledger.at_window_end[Category::optimizer].count(), 4 * kP / 4);
  EXPECT_EQ(ledger.after_optimizer[Category::optimizer].count(), 12 * kP / 4);
}

TEST(DeepSpeedZero3, BucketsFlushBeforeTheyOverflow) {
  // Elements in order of arrival, bucket of 20,000,000: the head (larger than the bucket) is reduced alone, then 19.9,
  // 16.8 and 8.4 million as layers fill it up, and the embedding alone. Derived by hand from the rule "flush what is
  // there if the next one does not fit" over the backward order of the kernels.
  Job job = BareJob(1);
  job.axes.sync.bucket_elements = 20'000'000;
  const Traffic traffic = TrafficOf(job);
  EXPECT_EQ(traffic.scattered, 2 * kP);
  EXPECT_EQ(traffic.scatters, 5);
}

TEST(DeepSpeedZero3, AGradientLargerThanTheBucketIsReducedWhereItLies) {
  Job job = BareJob(1);
  job.axes.sync.bucket_elements = 1'000'000;
  const Program program = Unroll(LowerSound(job, StepKind::steady).roles.front());
  std::int64_t in_place = 0;
  for (const Node& node : program.nodes) {
    const auto* collective = std::get_if<Collective>(&node);
    if (collective != nullptr && collective->kind == CollectiveKind::reduce_scatter) {
      in_place += program.buffers[collective->reads[0].buffer.index].category == Category::gradient ? 1 : 0;
    }
  }
  // Head, embedding, and of each layer gate-up, down, wq and wo.
  EXPECT_EQ(in_place, 2 + 4 * 4);
}

TEST(DeepSpeedZero3, TheFirstMicrobatchOfTrainingRecordsAndReleasesEverything) {
  // Twice P in the first microbatch, persistent parameters with it; then P a microbatch, among it once the persistent
  // ones; after the step the persistent ones again.
  const Traffic traffic = TrafficOf(OracleJob("deepspeed-zero3", 4), StepKind::first);
  EXPECT_EQ(traffic.gathered, 2 * (2 * kP + kP + 2 * (kP - 9 * 1024) + 9 * 1024));
}

TEST(DeepSpeedZero3, ModelsAboveTheReuseDistanceAreGatheredTwiceButForTheirEnd) {
  Job job = OracleJob("deepspeed-zero3", 1);
  job.axes.shard.reuse_distance = 30'000'000;
  job.axes.shard.prefetch_elements = 0;
  job.axes.shard.persistence_threshold = 0;
  // Only the head's second pass follows its first at once. Between the two of the final norm, and of all before it,
  // stand the head's own two, 65,536,000 elements.
  EXPECT_EQ(TrafficOf(job).gathered, 2 * (2 * kP - 32'768'000));
}

// Fetches as the plan has them, without a program: what folding loops must not change.
std::int64_t PlannedElements(const Job& job) {
  const std::vector<Stage> stages = *CutIntoStages(job);
  const ModuleTrace trace = TraceModules(stages[0], job.axes.shard.persistence_threshold);
  std::vector<bool> available(trace.parameters.size());
  std::int64_t elements = 0;
  for (const ModuleTrace::Traced& parameter : trace.parameters) {
    available[static_cast<std::size_t>(&parameter - trace.parameters.data())] = parameter.persistent;
    elements += parameter.persistent ? RoundUp(parameter.elements, job.layout.dp) : 0;
  }
  for (const GatherSet& set : PlanFetches(trace, job.axes.shard, true, available).sets) {
    for (const std::int64_t member : set.members) {
      const std::int64_t padded = RoundUp(trace.parameters[static_cast<std::size_t>(member)].elements, job.layout.dp);
      elements += padded * job.accumulation_steps;
    }
  }
  return elements;
}

TEST(DeepSpeedZero3, FoldedLayersFetchWhatThePlanFetches) {
  for (const std::int64_t layers : {4, 12, 80}) {
    for (const std::int64_t prefetch : {0, 12'000'000, 50'000'000}) {
      for (const std::int64_t reuse : AllOrLast<std::int64_t>({0, 1'000'000'000, 100'000'000})) {
        for (const std::int64_t live : {20'000'000, 60'000'000, 1'000'000'000}) {
          Job job = OracleJob("deepspeed-zero3", 2);
          std::get<Decoder>(job.network.shape).layers = layers;
          job.axes.shard.prefetch_elements = prefetch;
          job.axes.shard.reuse_distance = reuse;
          job.axes.shard.max_live_elements = live;
          SCOPED_TRACE(testing::Message() << layers << " " << prefetch << " " << reuse << " " << live);
          const StepProgram step = LowerSound(job, StepKind::steady);
          std::int64_t gathered = 0;
          for (const CommunicationRow& row : CountCommunication(step.roles.front())) {
            gathered += row.kind == "all_gather" ? row.payload.count() : 0;
          }
          EXPECT_EQ(gathered, 2 * PlannedElements(job));
          ExpectEnginesAgree(step, job.machine);
        }
      }
    }
  }
}

TEST(DeepSpeedZero3, ProgramsOfManyLayersStaySmallWherePlansRepeat) {
  const auto nodes = [](std::int64_t layers, bool bare) {
    Job job = bare ? BareJob(64) : OracleJob("deepspeed-zero3", 64);
    std::get<Decoder>(job.network.shape).layers = layers;
    const Result<StepProgram> step = Lower(job, StepKind::steady);
    EXPECT_TRUE(step.ok());
    return step->roles.front().nodes.size();
  };
  // Layers without a flush are one loop, whatever their number; each flush of 5e8 elements has one kernel per block.
  EXPECT_LT(nodes(40, true), 2500U);
  EXPECT_LT(nodes(40, true), nodes(20, true) + 100);
  // 1.4e9 elements: parameters are kept for reuse near the end only, so some layers differ from all others.
  EXPECT_LT(nodes(120, false), 15000U);
}

TEST(DeepSpeedZero3, RefusalsAreInItsOwnWords) {
  const auto refusal = [](auto change) {
    Job job = OracleJob("deepspeed-zero3", 2);
    change(job);
    const Result<StepProgram> step = Lower(job, StepKind::steady);
    return step.ok() ? std::string() : step.error().where + ": " + step.error().message;
  };
  const std::string no_sync =
      "sync.when: no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 3";
  EXPECT_EQ(refusal([](Job& job) { job.axes.sync.when = Sync::When::last; }), no_sync);
  EXPECT_EQ(refusal([](Job& job) {
              job.axes.sync.when = Sync::When::custom;
              job.axes.sync.expression = "i % 2";
            }),
            no_sync);
  EXPECT_EQ(refusal([](Job& job) { job.layout.pp = 2; }),
            "layout.pp: ZeRO-2 and ZeRO-3 are incompatible with pipeline parallelism");
  EXPECT_EQ(refusal([](Job& job) { job.axes.precision.master.reset(); }).substr(0, 16), "precision.master");
  EXPECT_EQ(refusal([](Job& job) { job.axes.shard.params = false; }).substr(0, 5), "shard");
  EXPECT_EQ(refusal([](Job& job) { job.axes.buffers.contiguous_gradients = false; }).substr(0, 28),
            "buffers.contiguous_gradients");
  EXPECT_EQ(refusal([](Job& job) { job.axes.sync.bucket_elements = 0; }),
            "sync.bucket_elements: a reduction bucket of no elements holds nothing");
  EXPECT_EQ(refusal([](Job& job) { job.axes.sync.bucket_bytes = Bytes(1); }).substr(0, 17), "sync.bucket_bytes");
}

TEST(DeepSpeedZero3, EverythingGoesBackToTheStateOfTheStepsStart) {
  for (const bool bare : {false, true}) {
    const Ledger ledger = LedgerOf(bare ? BareJob(3) : OracleJob("deepspeed-zero3", 3));
    EXPECT_EQ(ledger.live, ledger.between_microbatches.at(0));
  }
}

TEST(DeepSpeedZero3, PartitionsArePaddedParameterByParameter) {
  Job job = BareJob(1);
  job.layout.dp = 3;
  // ceil(n / 3): embedding and head 10,922,667 each, norms 342; wq, wo 349,526; wk, wv 87,382; gate-up 1,922,390; down
  // 961,195.
  const std::int64_t layer = 2 * 342 + 2 * 349'526 + 2 * 87'382 + 1'922'390 + 961'195;
  EXPECT_EQ(LedgerOf(job).between_microbatches.at(0)[Category::parameter].count(),
            2 * (2 * 10'922'667 + 342 + 4 * layer));
}

TEST(DeepSpeedZero3, OneRankGathersNothingAndDividesByOne) {
  Job job = OracleJob("deepspeed-zero3", 2);
  job.layout.dp = 1;
  const Ledger ledger = LedgerOf(job);
  EXPECT_EQ(ledger.between_microbatches.at(0)[Category::parameter].count(), 2 * kP);
  EXPECT_EQ(TrafficOf(job).gathers, 0);
}

TEST(DeepSpeedZero3, RandomSettingsAreSoundAndBothEnginesAgree) {
  Dice dice(20240229);
  for (int i = 0; i < Rounds(200); ++i) {
    Job job = OracleJob("deepspeed-zero3", Pick<std::int64_t>(dice, {1, 2, 3, 5}));
    Decoder& decoder = std::get<Decoder>(job.network.shape);
    decoder.layers = Pick<std::int64_t>(dice, {1, 2, 3, 4, 7, 12, 30});
    decoder.tied_embeddings = dice.OneIn(4);
    decoder.qkv_bias = dice.OneIn(4);
    job.layout.dp = Pick<std::int64_t>(dice, {1, 2, 3, 4, 16});
    job.layout.tp = Pick<std::int64_t>(dice, {1, 1, 2});
    Shard& shard = job.axes.shard;
    shard.prefetch_elements = Pick<std::int64_t>(dice, {0, 1, 1'000'000, 12'000'000, 50'000'000});
    shard.reuse_distance = Pick<std::int64_t>(dice, {0, 5'000'000, 40'000'000, 120'000'000, 1'000'000'000});
    shard.persistence_threshold = Pick<std::int64_t>(dice, {0, 1024, 100'000, 300'000, 2'000'000'000});
    shard.max_live_elements = Pick<std::int64_t>(dice, {0, 10'000'000, 50'000'000, 1'000'000'000});
    job.axes.sync.bucket_elements =
        Pick<std::int64_t>(dice, {1, 2, 1000, 2'000'000, 20'000'000, 60'000'000, 500'000'000});
    job.axes.sync.overlap = !dice.OneIn(4);
    job.axes.precision.accumulate = Pick<DType>(dice, {DType::bf16, DType::fp32});
    job.axes.precision.reduce = Pick<DType>(dice, {DType::bf16, DType::fp32});
    if (dice.OneIn(5)) {
      job.axes.precision.params = job.axes.precision.gradients = DType::fp32;
    }
    if (dice.OneIn(5)) {
      job.network.trainable = {"head.*"};
    } else if (dice.OneIn(5)) {
      job.network.trainable = {"layer.*"};
    }
    job.optimizer = Pick<OptimizerKind>(dice, {OptimizerKind::adamw, OptimizerKind::sgd, OptimizerKind::sgd_momentum});
    const StepKind kind = Pick<StepKind>(dice, {StepKind::first, StepKind::second, StepKind::steady});
    SCOPED_TRACE(testing::Message() << "variant " << i << " kind " << static_cast<int>(kind));
    const StepProgram step = LowerSound(job, kind);
    if (testing::Test::HasFailure()) {
      return;
    }
    ExpectEnginesAgree(step, job.machine);
  }
}

TEST(Zero3Bucket, TheWorkedFlushes) {
  // 32,768,000 does not fit an empty bucket of 20,000,000 and stays apart; the next one flushes it.
  const BucketPlan plan =
      PlanBuckets({{{2, 1}, 32'768'000}, {{2, 0}, 1024}, {{1, 0}, 10'000'000}, {{0, 0}, 10'000'000}}, 20'000'000, 4);
  EXPECT_FALSE(plan.arrivals[0].copied);
  ASSERT_TRUE(plan.arrivals[1].flush.has_value());
  EXPECT_TRUE(plan.arrivals[1].flush->one_whole);
  EXPECT_FALSE(plan.arrivals[1].flush->from_bucket);
  EXPECT_TRUE(plan.arrivals[2].joins);
  ASSERT_TRUE(plan.arrivals[3].flush.has_value());
  EXPECT_EQ(plan.arrivals[3].flush->elements, 10'001'024);
  EXPECT_TRUE(plan.arrivals[3].flush->parts[0].again);  // block 2, whose other gradient went before
  EXPECT_TRUE(plan.arrivals[3].waits);
  ASSERT_TRUE(plan.last.has_value());
  EXPECT_EQ(plan.last->elements, 10'000'000);
}

}  // namespace
}  // namespace tidemark::strategy_deepspeed_zero3_test
