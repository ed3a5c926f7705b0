// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "tests/sim/ledger.h"
#include "tests/sim/oracle_job.h"
#include "tests/sim/sound_program.h"

// HSDP of the worked numbers' model: P = 110,633,984 parameters, N = 4 ranks as S = 2 shards times R = 2 replicas, bf16
// for compute, fp32 shards and reduction. All parameters divide by 2: nothing is padded.

namespace tidemark::strategy_hsdp_test {
namespace {

constexpr std::int64_t kParameters = 110'633'984;
constexpr std::int64_t kShard = 4 * kParameters / 2;  ///< bytes of all parameters in fp32 over S = 2

Job HybridJob(std::int64_t microbatches, const std::string& strategy = "hsdp") {
  Job job = OracleJob(strategy, microbatches);
  job.axes.shard.replicas = 2;
  return job;
}

const CommunicationRow* Find(const std::vector<CommunicationRow>& rows, const std::string& kind) {
  for (const CommunicationRow& row : rows) {
    if (row.kind == kind) {
      return &row;
    }
  }
  return nullptr;
}

TEST(Hsdp, ScattersEveryMicrobatchOverShardsAndAllReducesOnceOverReplicas) {
  const std::vector<CommunicationRow> rows = CountCommunication(Sound(HybridJob(4)).roles.front());
  const CommunicationRow* scatter = Find(rows, "reduce_scatter");
  const CommunicationRow* all_reduce = Find(rows, "all_reduce");
  ASSERT_TRUE(scatter != nullptr && all_reduce != nullptr);
  // M P b_r over S.
  EXPECT_EQ(scatter->group, "dp");
  EXPECT_EQ(scatter->count, 4 * 6);
  EXPECT_EQ(scatter->payload.count(), 4 * 4 * kParameters);
  EXPECT_EQ(scatter->wire.count(), 4 * 4 * kParameters / 2);
  // P b_r / S over R.
  EXPECT_EQ(all_reduce->group, "replicas");
  EXPECT_EQ(all_reduce->count, 6);
  EXPECT_EQ(all_reduce->payload.count(), kShard);
  EXPECT_EQ(all_reduce->wire.count(), kShard);
  // As in F1: every unit forward, resharded ones backward; F1's number does not depend on the group's size.
  EXPECT_EQ(Find(rows, "all_gather")->payload.count(), 1'507'991'552);
}

TEST(Hsdp, GroupsAreShardsNextToEachOtherAndReplicasAStrideApart) {
  Job job = HybridJob(1);
  job.layout.dp = 16;
  job.machine.devices_per_node = 8;
  const StepProgram step = Sound(job);
  for (const Group& group : step.roles.front().groups) {
    if (group.name == "dp") {
      EXPECT_EQ(group.size, 8);
      EXPECT_EQ(group.ranks_per_node, 8);
    } else if (group.name == "replicas") {
      EXPECT_EQ(group.size, 2);
      EXPECT_EQ(group.ranks_per_node, 1);
    }
  }
}

TEST(Hsdp, BetweenMicrobatchesOnePartlyReducedShardIsKept) {
  const Job job = HybridJob(4);
  const Ledger ledger = Audit(Sound(job), job.machine);
  const CategoryBytes between = ledger.between_microbatches.at(2);
  EXPECT_EQ(between[Category::accumulator].count(), kShard);
  EXPECT_EQ(between[Category::gradient].count(), 0);
  EXPECT_EQ(between[Category::bucket].count(), 0);
  EXPECT_EQ(ledger.at_window_end[Category::accumulator].count(), 0);
  EXPECT_EQ(ledger.at_window_end[Category::gradient].count(), kShard);
}

TEST(Hsdp, AllReduceBuffersStayUntilTheEndOfTheBackwardUnlessTheyAreTheGradient) {
  // What is alive behind the last kernel of the backward pass: with an fp32 reduction of fp32 shards the all-reduced
  // buffer is the sharded gradient. With bf16 shards it is cast, and all P b_r / S = 4 P / 2 wait for the end.
  Job job = HybridJob(1);
  const auto waiting = [&] {
    const StepProgram step = Sound(job);
    return Audit(step, job.machine).after_backward.front()[Category::bucket].count();
  };
  const std::int64_t embedding_input = 4 * 32'768'000;
  EXPECT_EQ(waiting(), embedding_input);
  job.axes.precision.master.reset();
  EXPECT_EQ(waiting(), embedding_input + kShard);
}

TEST(Hsdp, AllReducingEveryMicrobatchHoldsTheBuffersBesideAnExistingGradient) {
  const Job job = HybridJob(2, "fsdp2-scatter-each");
  const StepProgram step = Sound(job);
  const Ledger ledger = Audit(step, job.machine);
  const std::int64_t embedding_input = 4 * 32'768'000;
  EXPECT_EQ(ledger.after_backward.at(0)[Category::bucket].count(), embedding_input);
  EXPECT_EQ(ledger.after_backward.at(1)[Category::bucket].count(), embedding_input + kShard);
  EXPECT_EQ(Find(CountCommunication(step.roles.front()), "all_reduce")->payload.count(), 2 * kShard);
}

TEST(Hsdp, TheLastMicrobatchHoldsOneUnitsPartialSumBesideItsScatterOutput) {
  const Program program = Unroll(Sound(HybridJob(2)).roles.front());
  const std::vector<std::string> wanted = {
      R"(alloc "partly reduced gradient of layer"[1])", R"(alloc "scatter output of layer"[1])",
      R"(alloc "sharded gradient of layer"[1])", R"(free "partly reduced gradient of layer"[1])"};
  std::vector<std::string> events;
  for (const Node& node : program.nodes) {
    const std::string line = Print(program, node);
    if (std::find(wanted.begin(), wanted.end(), line) != wanted.end()) {
      events.push_back(line);
    }
  }
  // Microbatch 0: the output is the partial sum. Microbatch 1, fp32 shards: its output is the sharded gradient.
  EXPECT_EQ(events, (std::vector<std::string>{wanted[0], wanted[2], wanted[3]}));
}

TEST(Hsdp, BothReductionsAverageOrBothSum) {
  for (const LossScale scale : {LossScale::microbatches, LossScale::global_tokens}) {
    Job job = HybridJob(3);
    job.axes.loss_scale = scale;
    const Reduction expected = scale == LossScale::microbatches ? Reduction::avg : Reduction::sum;
    const StepProgram step = Sound(job);
    for (const Node& node : step.roles.front().nodes) {
      const auto* collective = std::get_if<Collective>(&node);
      if (collective != nullptr && collective->kind != CollectiveKind::all_gather) {
        EXPECT_EQ(collective->reduction, expected);
        EXPECT_EQ(collective->scale, Rational(1));
      }
    }
  }
}

TEST(Hsdp, OneShardPerReplicaScattersNothing) {
  Job job = HybridJob(3);
  job.axes.shard.replicas = 4;
  const StepProgram step = Sound(job);
  const std::vector<CommunicationRow> rows = CountCommunication(step.roles.front());
  ASSERT_EQ(rows.size(), 1U);
  EXPECT_EQ(rows.front().kind, "all_reduce");
  EXPECT_EQ(rows.front().payload.count(), 4 * kParameters);
}

TEST(Hsdp, EverythingGoesBackToTheStateOfTheStepsStart) {
  for (const std::int64_t microbatches : {1, 2, 4}) {
    const Job job = HybridJob(microbatches);
    for (const StepKind kind : {StepKind::second, StepKind::steady}) {
      const StepProgram step = Sound(job, kind);
      const Ledger ledger = Audit(step, job.machine);
      EXPECT_EQ(ledger.live, ledger.between_microbatches.at(0));
    }
  }
}

TEST(Hsdp, AnIncompleteWindowsPartialSumsAreThrownAway) {
  Job job = HybridJob(4);
  job.last_window = {LastWindow::Policy::drop, 3};
  const StepProgram step = Sound(job);
  const Ledger ledger = Audit(step, job.machine);
  EXPECT_EQ(ledger.between_microbatches.at(2)[Category::accumulator].count(), kShard);
  EXPECT_EQ(ledger.live, ledger.between_microbatches.at(0));
}

TEST(Hsdp, TheProgramDoesNotGrowWithLayersOrMicrobatches) {
  const auto nodes = [](std::int64_t layers, std::int64_t microbatches) {
    Job job = HybridJob(microbatches);
    std::get<Decoder>(job.network.shape).layers = layers;
    return Sound(job).roles.front().nodes.size();
  };
  EXPECT_EQ(nodes(126, 64), nodes(8, 4));
}

TEST(Hsdp, OneReplicaIsRefused) {
  const Result<StepProgram> step = Lower(OracleJob("hsdp", 4), StepKind::steady);
  ASSERT_FALSE(step.ok());
  EXPECT_EQ(step.error().where, "shard.replicas");
  EXPECT_NE(step.error().message.find("with one replica there is nothing to all-reduce"), std::string::npos);
}

}  // namespace
}  // namespace tidemark::strategy_hsdp_test
