// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "sim/engine/closed_form.h"
#include "sim/engine/simulate.h"
#include "sim/lower/lower.h"
#include "sim/program/verify.h"
#include "tests/sim/dice.h"
#include "tests/sim/oracle_job.h"

// Which jobs FSDP1 takes and which it refuses, and many of those that it takes.

namespace tidemark::strategy_fsdp1_jobs_test {
namespace {

Error Refused(const Job& job) {
  const Result<StepProgram> step = Lower(job, StepKind::steady);
  EXPECT_FALSE(step.ok());
  return step.ok() ? Error{} : step.error();
}

template <class Change>
std::string KeyRefused(const char* strategy, Change change) {
  Job job = OracleJob(strategy, 4);
  change(job);
  return Refused(job).where;
}

TEST(Fsdp1Jobs, WhatItWouldNotLookAtIsRefusedWithItsKey) {
  EXPECT_EQ(KeyRefused("fsdp1", [](Job& job) { job.axes.sync.collective = CollectiveKind::all_reduce; }),
            "sync.collective");
  EXPECT_EQ(KeyRefused("fsdp1", [](Job& job) { job.axes.sync.overlap = false; }), "sync.overlap");
  EXPECT_EQ(KeyRefused("fsdp1", [](Job& job) { job.axes.sync.bucket_bytes = Bytes(1); }), "sync.bucket_bytes");
  EXPECT_EQ(KeyRefused("fsdp1", [](Job& job) { job.axes.shard.params = false; }), "shard.params");
  EXPECT_EQ(KeyRefused("fsdp1", [](Job& job) { job.axes.shard.reshard_after_backward = false; }),
            "shard.reshard_after_backward");
  EXPECT_EQ(KeyRefused("fsdp1", [](Job& job) { job.axes.shard.prefetch_forward = 1; }), "shard.prefetch_forward");
  EXPECT_EQ(KeyRefused("fsdp1-no-sync", [](Job& job) { job.axes.precision.accumulate = DType::fp32; }),
            "precision.accumulate");
  EXPECT_EQ(KeyRefused("fsdp1", [](Job& job) { job.axes.precision.gradients = DType::fp32; }), "precision.gradients");
  EXPECT_EQ(KeyRefused("fsdp1", [](Job& job) { job.layout.pp = 2; }), "layout.pp");
}

TEST(Fsdp1Jobs, AWindowMayNotEndInNoSync) {
  Job job = OracleJob("fsdp1-no-sync", 4);
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = "i == 0";
  job.axes.sync.step_expression = "i == steps - 1";
  const Error error = Refused(job);
  EXPECT_EQ(error.where, "sync.expression");
  EXPECT_EQ(error.message,
            "the optimizer would step inside no_sync, where the gradient of a sharded parameter is not sharded");
}

TEST(Fsdp1Jobs, AShardGroupOfOneRankWouldNeverReduceOverItsReplicas) {
  Job job = OracleJob("fsdp1", 2);
  job.axes.shard.replicas = 4;
  EXPECT_EQ(Refused(job).message,
            "FSDP is switching to use `NO_SHARD` instead of ShardingStrategy.HYBRID_SHARD since the world size is 1: "
            "the shard group has one rank, and gradients would never be reduced over the replicas");
  job.layout.cp = 2;  // over whose ranks is sharded as well
  EXPECT_TRUE(FindStrategy("fsdp1")->Accept(job).ok());
}

TEST(Fsdp1Jobs, AFlatParameterIsFrozenAsAWhole) {
  Job job = OracleJob("fsdp1", 2);
  for (const char* trainable : {"layer.w*", "head.*"}) {
    job.network.trainable = {trainable};
    EXPECT_EQ(Refused(job).message, "Must flatten tensors with uniform `requires_grad` when `use_orig_params=False`");
  }
}

TEST(Fsdp1Jobs, OneRankWithANarrowReductionIsNotModelled) {
  Job job = OracleJob("fsdp1", 2);
  job.layout.dp = 1;
  job.axes.precision.reduce = DType::bf16;
  EXPECT_EQ(Refused(job).where, "precision.reduce");
  job.accumulation_steps = 1;
  EXPECT_TRUE(Lower(job, StepKind::steady).ok());
}

TEST(Fsdp1Jobs, AnUnfinishedWindowIsThrownAway) {
  for (const bool reshard : {true, false}) {
    for (const char* strategy : {"fsdp1", "fsdp1-no-sync"}) {
      for (const std::int64_t ranks : {1, 4}) {
        Job job = OracleJob(strategy, 4);
        job.layout.dp = ranks;
        job.axes.shard.reshard_after_forward = reshard;
        job.last_window = {LastWindow::Policy::drop, 2};
        const Result<StepProgram> step = Lower(job, StepKind::steady);
        ASSERT_TRUE(step.ok());
        EXPECT_TRUE(Verify(*step).empty()) << Verify(*step).front().message;
      }
    }
  }
}

void ChooseSync(Dice& dice, Job& job) {
  static constexpr const char* kExpressions[] = {"i % 2 == 1 or i == steps - 1", "i == 0 or i == steps - 1",
                                                 "i % 3 == 2 or i == steps - 1"};
  if (dice.OneIn(3)) {
    job.axes.sync.when = Sync::When::custom;
    job.axes.sync.expression = kExpressions[dice.Roll(3)];
    job.axes.sync.step_expression = "i == steps - 1";  // one window, else its size is wrong
  }
}

void ChoosePrecision(Dice& dice, Job& job) {
  Precision& precision = job.axes.precision;
  if (dice.OneIn(3)) {
    precision.params = precision.gradients = precision.accumulate = DType::fp32;
  }
  if (dice.OneIn(4)) {
    precision.master.reset();
  }
  if (dice.OneIn(4) && job.layout.dp > 1) {
    precision.reduce = DType::bf16;
  }
  if (job.layout.dp == 1) {
    precision.reduce = precision.master.value_or(precision.params);
  }
}

/// A job over every setting that the strategy looks at.
Job AnyJob(Dice& dice) {
  Job job = OracleJob(dice.OneIn(2) ? "fsdp1" : "fsdp1-no-sync", dice.Number(1, 9));
  Decoder& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = dice.Number(1, 14);
  decoder.vocabulary = dice.Number(1000, 1010);
  decoder.hidden = 64;
  decoder.ffn = dice.Number(60, 70);
  decoder.heads = 4;
  decoder.kv_heads = 2;
  decoder.head_size = 16;
  decoder.tied_embeddings = dice.OneIn(3);
  job.sequence_length = 64;
  Shard& shard = job.axes.shard;
  shard.replicas = dice.OneIn(3) ? dice.Number(1, 3) : 1;
  job.layout.dp = shard.replicas * (shard.replicas > 1 ? dice.Number(2, 7) : dice.Number(1, 7));
  shard.reshard_after_forward = dice.OneIn(2);
  shard.limit_all_gathers = !dice.OneIn(3);
  shard.backward_prefetch = static_cast<Shard::BackwardPrefetch>(dice.Roll(3));
  job.optimizer = static_cast<OptimizerKind>(dice.Roll(3));
  ChooseSync(dice, job);
  ChoosePrecision(dice, job);
  if (dice.OneIn(4)) {
    job.network.trainable = {"layer.*"};
  }
  return job;
}

TEST(Fsdp1Jobs, AnyJobVerifiesAndBothEnginesAgreeOnIt) {
  Dice dice(1101);
  for (int i = 0; i < Rounds(400); ++i) {
    const Job job = AnyJob(dice);
    const Result<StepProgram> step = Lower(job, static_cast<StepKind>(i % 3));
    ASSERT_TRUE(step.ok()) << step.error().Text();
    const std::vector<Finding> findings = Verify(*step);
    ASSERT_TRUE(findings.empty()) << "job " << i << ": " << findings.front().message;
    const std::vector<Costs> costs = PriceAll(*step, job.machine);
    ASSERT_EQ(Simulate(*step, costs), EvaluateClosedForm(*step, costs)) << "job " << i;
  }
}

}  // namespace
}  // namespace tidemark::strategy_fsdp1_jobs_test
