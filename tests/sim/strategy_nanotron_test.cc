// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "sim/lower/block_writer.h"
#include "sim/predict/communication.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/oracle_job.h"

// Expected values: worked numbers of nanotron's data-parallel path and tensor-parallel modes for the oracle model
// (t = 2: 55,321,600 parameters per tensor-parallel rank; n = 4096 tokens, h = 1024).

namespace tidemark::strategy_nanotron_test {
namespace {

Job NanotronJob(std::int64_t tp, std::int64_t microbatches) {
  Job job = OracleJob("nanotron", microbatches);
  job.layout.tp = tp;
  job.layout.sp = tp > 1;
  return job;
}

CommunicationRow Row(const StepProgram& step, const std::string& kind, const std::string& group) {
  for (const CommunicationRow& row : CountCommunication(step.roles.front())) {
    if (row.kind == kind && row.group == group) {
      return row;
    }
  }
  return {};
}

TEST(Nanotron, EveryTensorParallelRankHoldsItsShareOfEachState) {
  const Job job = NanotronJob(2, 4);
  const CategoryBytes between = Audit(Sound(job), job.machine).between_microbatches.at(2);
  EXPECT_EQ(between[Category::parameter].count(), 110'643'200);
  EXPECT_EQ(between[Category::bucket].count(), 110'643'200);
  EXPECT_EQ(between[Category::accumulator].count(), 221'286'400);
  EXPECT_EQ(between[Category::optimizer].count(), 221'286'400 + 442'572'800);
}

TEST(Nanotron, BetweenMicrobatchesOnlyTheAccumulatorHoldsGradients) {
  const Job job = NanotronJob(1, 4);
  EXPECT_EQ(SystemBytes(Audit(Sound(job), job.machine).between_microbatches.at(2)).count(), 2'212'679'680);
}

TEST(Nanotron, GradientsAreGoneAfterEveryBackwardTheSynchronisedOneToo) {
  const Job job = NanotronJob(1, 4);
  EXPECT_EQ(SystemBytes(Audit(Sound(job), job.machine).at_window_end).count(), 2'212'679'680);
}

TEST(Nanotron, ZeroOneDividesMastersAndMomentsByTheGroup) {
  Job job = NanotronJob(1, 4);
  job.axes.shard.optimizer = true;
  EXPECT_EQ(SystemBytes(Audit(Sound(job), job.machine).between_microbatches.at(2)).count(), 1'216'973'824);
  Job with_tp = NanotronJob(2, 4);
  with_tp.axes.shard.optimizer = true;
  EXPECT_EQ(Audit(Sound(with_tp), with_tp.machine).at_window_end[Category::optimizer].count(), 55'321'600 * 3);
}

TEST(Nanotron, GradientsAreReducedOnceInFp32) {
  const StepProgram plain = Sound(NanotronJob(1, 4));
  EXPECT_EQ(Row(plain, "all_reduce", "dp").payload.count(), 442'535'936);
  EXPECT_EQ(Row(plain, "all_reduce", "dp").wire.count(), 663'803'904);
  Job job = NanotronJob(1, 4);
  job.axes.shard.optimizer = true;
  const StepProgram zero = Sound(job);
  EXPECT_EQ(Row(zero, "reduce_scatter", "dp").payload.count(), 442'535'936);
  EXPECT_EQ(Row(zero, "all_gather", "dp").payload.count(), 221'267'968);
  EXPECT_EQ((Row(zero, "reduce_scatter", "dp").wire + Row(zero, "all_gather", "dp").wire).count(), 497'852'928);
}

TEST(Nanotron, GatheringAgainAddsTwoGathersPerLayerAndMicrobatch) {
  Job cached = NanotronJob(2, 1);
  cached.axes.buffers.tp_gather = Buffers::TpGather::fresh;
  const std::int64_t again = Row(Sound(NanotronJob(2, 1)), "all_gather", "tp").payload.count();
  const std::int64_t once = Row(Sound(cached), "all_gather", "tp").payload.count();
  // 2 per layer of 8,388,608 bytes, 4 layers, and the head's.
  EXPECT_EQ(again - once, (2 * 4 + 1) * 8'388'608);
}

TEST(Nanotron, CachingTheGatherKeepsEightMebibytesMorePerLayer) {
  const auto saved = [](Buffers::TpGather gather) {
    Job job = NanotronJob(2, 1);
    job.axes.buffers.tp_gather = gather;
    const Result<std::vector<Stage>> stages = CutIntoStages(job);
    EXPECT_TRUE(stages.ok());
    return SavedBytes(stages->front().BlockAt(1)).count();
  };
  EXPECT_EQ(saved(Buffers::TpGather::pooled), 62'013'440);
  EXPECT_EQ(saved(Buffers::TpGather::cached), 70'402'048);
  EXPECT_EQ(saved(Buffers::TpGather::fresh), 70'402'048);
}

TEST(Nanotron, ThePoolIsOneBlockThatAppearsInTheFirstStepAndStays) {
  const Job job = NanotronJob(2, 2);
  EXPECT_EQ(Audit(Sound(job), job.machine).between_microbatches.at(0)[Category::tp_gather].count(), 8'388'608);
  const Ledger first = Audit(Sound(job, StepKind::first), job.machine);
  EXPECT_EQ(first.between_microbatches.at(0)[Category::tp_gather].count(), 0);
  EXPECT_EQ(first.between_microbatches.at(1)[Category::tp_gather].count(), 8'388'608);
}

TEST(Nanotron, OneForwardOneBackwardKeepsAsManyMicrobatchesAsStagesAreLeft) {
  Job job = NanotronJob(1, 8);
  job.layout.pp = 4;
  const StepProgram step = Sound(job);
  ASSERT_EQ(step.roles.size(), 4U);
  const std::vector<Costs> costs = PriceAll(step, job.machine);
  const Evaluation evaluation = Simulate(step, costs);
  // One layer per stage; 124,026,880 bytes saved per microbatch in it. Stages 1 and 2 differ by one microbatch in
  // flight: its layer's saved bytes, and the stage's output that waits for its backward (8,388,608).
  EXPECT_EQ((evaluation.roles[1].allocated - evaluation.roles[2].allocated).count(), 124'026'880 + 8'388'608);
}

TEST(Nanotron, ATiedEmbeddingOnTwoStagesIsExchangedOnce) {
  Job job = NanotronJob(1, 4);
  job.layout.pp = 2;
  std::get<Decoder>(job.network.shape).tied_embeddings = true;
  const StepProgram step = Sound(job);
  std::int64_t exchanged = 0;
  for (const CommunicationRow& row : CountCommunication(step.roles.front())) {
    if (row.kind == "send" && row.dtype == DType::fp32) {
      exchanged += row.payload.count();
    }
  }
  EXPECT_EQ(exchanged, 4 * 32'768'000);
}

TEST(Nanotron, FewerMicrobatchesThanItsScheduleAssertsAreRefused) {
  Job job = NanotronJob(1, 2);
  job.layout.pp = 4;
  EXPECT_FALSE(Lower(job, StepKind::steady).ok());
  job.schedule = Schedule::gpipe;
  EXPECT_TRUE(Lower(job, StepKind::steady).ok());
}

}  // namespace
}  // namespace tidemark::strategy_nanotron_test
