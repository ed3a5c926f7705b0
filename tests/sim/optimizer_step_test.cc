// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/job/validate.h"
#include "sim/engine/closed_form.h"
#include "tests/sim/optimizer_book.h"

namespace tidemark::optimizer_step_test {
namespace {

using Kernel = OptimizerStep::Kernel;
using testing::HasSubstr;

Job WithKernel(const std::string& strategy, Kernel kernel) {
  Job job = OracleJob(strategy, 4);
  job.axes.optimizer_step.kernel = kernel;
  const Status accepted = FindStrategy(strategy)->Accept(job);
  EXPECT_TRUE(accepted.ok()) << accepted.error().Text();
  return job;
}

void MakeFp32(Job& job) {
  Precision& precision = job.axes.precision;
  precision.params = precision.gradients = precision.reduce = precision.accumulate = precision.optimizer = DType::fp32;
}

/// Blocks of one weight each.
Job TableJob(const std::vector<std::int64_t>& sizes, Kernel kernel) {
  Job job = WithKernel("ddp-last", kernel);
  MakeFp32(job);
  Table table;
  for (const std::int64_t size : sizes) {
    table.rows.push_back({"block" + std::to_string(table.rows.size()), 1, size, 2048, 0, 8192, 16384, 0, 0});
  }
  job.network = {"table", table, {}};
  return job;
}

// pytorch/pytorch#97712: foreach needs one more set of parameters than the for-loop's state. The denominators of all
// tensors live at once; releases up to 1.13 had a second list of them (measured: 2.0 P).
TEST(OptimizerStep, ForeachAdamNeedsOneMoreSetOfParameters) {
  Job job = WithKernel("ddp-last", Kernel::foreach_);
  MakeFp32(job);
  const OptimizerBook book = BookOfOptimizer(job);
  EXPECT_EQ(book.highest_temporaries.count(), kP);
  // Weights, gradients, buckets and two moments are there already.
  EXPECT_EQ(book.highest.count() - book.at_begin.count(), kP);
  EXPECT_GE(book.at_begin.count(), 5 * kP);
}

TEST(OptimizerStep, AFusedKernelNeedsNothing) {
  const OptimizerBook book = BookOfOptimizer(WithKernel("ddp-last", Kernel::fused));
  EXPECT_EQ(book.highest, book.at_begin);
}

// FSDP2 updates fp32 shards: P / N. Every dimension 0 of the oracle's model is divisible by 4.
TEST(OptimizerStep, ForeachOverShardsNeedsOneMoreShardOfThem) {
  EXPECT_EQ(Temporaries(WithKernel("fsdp2-scatter-each", Kernel::foreach_)), kP / 4);
  EXPECT_EQ(Temporaries(WithKernel("fsdp1", Kernel::foreach_)), kP / 4);
}

// Measured with PyTorch 1.13 (for-loop, no weight decay added to gradients): tensors of .25, .125, .375 and .25 P need
// max(2 p_i + p_(i-1)) = 2 * .375 + .125 = .875 P. Later releases compute the same expression.
TEST(OptimizerStep, TheForLoopNeedsTwoOfATensorAndTheOneBefore) {
  EXPECT_EQ(Temporaries(TableJob({2'000'000, 1'000'000, 3'000'000, 2'000'000}, Kernel::for_loop)), 7'000'000 * 4);
  EXPECT_EQ(Temporaries(TableJob({2'000'000, 1'000'000, 3'000'000, 2'000'000}, Kernel::foreach_)), 8'000'000 * 4);
}

// A block's parameters are tensors of their own: behind the last norm (1,024) comes the head (32,000 x 1,024).
TEST(OptimizerStep, TheForLoopTakesTheParametersOfABlockOneByOne) {
  Job job = WithKernel("ddp-last", Kernel::for_loop);
  MakeFp32(job);
  EXPECT_EQ(Temporaries(job), (2 * 32'768'000 + 1'024) * 4);
  // Of FSDP2's shards likewise.
  EXPECT_EQ(Temporaries(WithKernel("fsdp2-scatter-each", Kernel::for_loop)), (2 * 32'768'000 + 1'024));
}

// ZeRO's partition is one flat tensor: 110,633,984 / 4 elements, evenly. FP32 masters and moments.
TEST(OptimizerStep, OverAFlatPartitionTheForLoopNeedsMoreThanForeach) {
  for (const char* strategy : {"deepspeed-zero1", "deepspeed-zero2", "deepspeed-bf16", "deepspeed-zero3"}) {
    EXPECT_EQ(Temporaries(WithKernel(strategy, Kernel::foreach_)), kP / 4) << strategy;
    EXPECT_EQ(Temporaries(WithKernel(strategy, Kernel::for_loop)), kP / 4 * 2) << strategy;
  }
}

TEST(OptimizerStep, MomentumIsUpdatedInPlace) {
  Job job = WithKernel("ddp-last", Kernel::foreach_);
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::sgd_momentum}) {
    job.optimizer = kind;
    EXPECT_EQ(Temporaries(job), 0);
  }
}

// torch.optim's _init_group makes the state of all parameters before the first kernel: lists come on top of it.
TEST(OptimizerStep, InTheFirstStepTemporariesComeOnTopOfTheNewState) {
  Job job = WithKernel("ddp-last", Kernel::foreach_);
  MakeFp32(job);
  const OptimizerBook first = BookOfOptimizer(job, StepKind::first), steady = BookOfOptimizer(job);
  EXPECT_EQ((first.highest - first.at_begin).count(), 3 * kP);  // two moments, one list
  EXPECT_EQ(first.highest, steady.highest);
}

// Megatron's first step lacks Adam's two moments until its update: 8 bytes a parameter.
TEST(OptimizerStep, MegatronsFirstStepHasNoStateBeforeItsUpdate) {
  const Job job = OracleJob("megatron", 4);
  const OptimizerBook first = BookOfOptimizer(job, StepKind::first), second = BookOfOptimizer(job, StepKind::second);
  EXPECT_EQ((second.at_begin - first.at_begin).count(), kElements * 8);
  EXPECT_EQ(second.highest, first.highest);
}

TEST(OptimizerStep, LoopsOverEqualBlocksStayFolded) {
  for (const Kernel kernel : {Kernel::foreach_, Kernel::for_loop}) {
    for (const char* strategy : {"ddp-last", "fsdp2-defer", "fsdp1-no-sync", "deepspeed-zero3", "colossalai-zero2"}) {
      const auto more_nodes = [&](std::int64_t layers) {
        Job job = WithKernel(strategy, kernel), fused = WithKernel(strategy, Kernel::fused);
        std::get<Decoder>(job.network.shape).layers = std::get<Decoder>(fused.network.shape).layers = layers;
        return Sound(job).roles.front().nodes.size() - Sound(fused).roles.front().nodes.size();
      };
      EXPECT_EQ(more_nodes(120), more_nodes(12)) << strategy;
    }
  }
}

TEST(OptimizerStep, MoreKernelsTakeLonger) {
  const auto busy = [](Kernel kernel) {
    const Job job = WithKernel("ddp-last", kernel);
    const StepProgram step = Sound(job);
    const std::vector<Costs> costs = PriceAll(step, job.machine);
    return Simulate(step, costs).time.step;
  };
  EXPECT_LT(busy(Kernel::fused), busy(Kernel::foreach_));
  EXPECT_LT(busy(Kernel::foreach_), busy(Kernel::for_loop));
}

Job WithStepInBackward(const std::string& strategy) {
  Job job = OracleJob(strategy, 1);
  job.axes.optimizer_step.in_backward = true;
  return job;
}

/// The most gradients alive, in bytes.
std::int64_t HighestGradients(const Job& job, StepKind kind = StepKind::steady) {
  EXPECT_TRUE(Validate(job).ok()) << Validate(job).error().Text();
  EXPECT_TRUE(FindStrategy(job.strategy)->Accept(job).ok()) << FindStrategy(job.strategy)->Accept(job).error().Text();
  return BookOfOptimizer(job, kind).highest_gradients.count();
}

// One rank, one gradient at a time: the largest is the head's or the embedding's, 32,000 x 1,024 in bf16.
TEST(StepInBackward, OneGradientIsAliveAtATime) {
  Job job = WithStepInBackward("ddp-last");
  job.layout.dp = 1;
  EXPECT_EQ(HighestGradients(job), 32'768'000 * 2);
  EXPECT_EQ(HighestGradients(job, StepKind::first), 32'768'000 * 2);
  job.axes.optimizer_step.in_backward = false;
  EXPECT_EQ(HighestGradients(job), kElements * 2);
}

// FSDP2: the bf16 gradients of the unit in backward, and the fp32 shard of one.
TEST(StepInBackward, FullyShardHasOneUnitsGradientsAtATime) {
  Job job = WithStepInBackward("fsdp2-scatter-each");
  EXPECT_LE(HighestGradients(job), 32'768'000 * 2 + 32'768'000 / 4 * 4);
  job.axes.optimizer_step.in_backward = false;
  EXPECT_GE(HighestGradients(job), kP / 4);
}

TEST(StepInBackward, LeavesTheOptimizerNothingToDo) {
  Job job = WithStepInBackward("fsdp2-scatter-each");
  const OptimizerBook book = BookOfOptimizer(job);
  EXPECT_EQ(book.highest, book.at_begin);
  // Shards and two moments of them in fp32 are all there is.
  EXPECT_EQ(book.at_begin.count(), 3 * kP / 4);
}

// The tutorial "How to save memory by fusing the optimizer step into the backward pass" (pytorch/tutorials#2568) shows
// a peak that moves from foreach Adam's temporaries to the start of the backward pass.
TEST(StepInBackward, MovesThePeakFromTheOptimizerToTheStartOfTheBackwardPass) {
  const auto peak = [](bool in_backward) {
    Job job = OracleJob("ddp-last", 1);
    job.layout.dp = 1;
    job.sequence_length = 160;
    job.axes.optimizer_step.kernel = in_backward ? Kernel::fused : Kernel::foreach_;
    job.axes.optimizer_step.in_backward = in_backward;
    const StepProgram step = Sound(job);
    return EvaluateClosedForm(step, PriceAll(step, job.machine)).roles.front();
  };
  EXPECT_EQ(peak(false).phase, Phase::optimizer);
  EXPECT_EQ(peak(true).phase, Phase::backward);
  EXPECT_LT(peak(true).allocated, peak(false).allocated);
  EXPECT_EQ(peak(true).by_category[Category::gradient], Bytes(0));
}

TEST(StepInBackward, IsRefusedWhereGradientsAreNeededTogether) {
  const auto refused = [](auto change) {
    Job job = WithStepInBackward("fsdp2-scatter-each");
    change(job);
    const Status valid = Validate(job);
    const Status accepted = FindStrategy(job.strategy)->Accept(job);
    return !valid.ok() ? valid.error().Text() : accepted.ok() ? std::string() : accepted.error().Text();
  };
  EXPECT_EQ(refused([](Job&) {}), "");
  EXPECT_THAT(refused([](Job& job) { job.accumulation_steps = 2; }), HasSubstr("weights changed"));
  EXPECT_THAT(refused([](Job& job) { job.axes.optimizer_step.clip_norm = 1; }), HasSubstr("the norm is known only"));
  EXPECT_THAT(refused([](Job& job) { job.axes.optimizer_step.kernel = Kernel::foreach_; }), HasSubstr("fused"));
  EXPECT_THAT(refused([](Job& job) { std::get<Decoder>(job.network.shape).tied_embeddings = true; }),
              HasSubstr("tied embedding"));
  EXPECT_THAT(refused([](Job& job) { job.axes.shard.replicas = 2; }), HasSubstr("between replicas"));
  EXPECT_THAT(refused([](Job& job) { job.strategy = "ddp-last", job.axes = WithStepInBackward("ddp-last").axes; }),
              HasSubstr("set layout.dp and layout.cp to 1"));
  EXPECT_THAT(refused([](Job& job) { job.strategy = "megatron", job.axes = WithStepInBackward("megatron").axes; }),
              HasSubstr("no such setting"));
}

TEST(OptimizerStep, SystemsRefuseKernelsThatTheyDoNotHave) {
  const auto refused = [](const char* strategy, Kernel kernel) {
    Job job = OracleJob(strategy, 4);
    job.axes.optimizer_step.kernel = kernel;
    const Status accepted = FindStrategy(strategy)->Accept(job);
    return accepted.ok() ? std::string() : accepted.error().Text();
  };
  EXPECT_THAT(refused("megatron", Kernel::for_loop), HasSubstr("foreach: false"));
  EXPECT_THAT(refused("nanotron", Kernel::for_loop), HasSubstr("foreach: false"));
  EXPECT_EQ(refused("megatron-dist-opt", Kernel::foreach_), "");
  EXPECT_THAT(refused("alpa", Kernel::foreach_), HasSubstr("has no such setting"));
  EXPECT_THAT(refused("colossalai-gemini", Kernel::foreach_), HasSubstr("has no such setting"));
  EXPECT_THAT(refused("deepspeed-zero0", Kernel::foreach_), HasSubstr("FP16_UnfusedOptimizer"));
}

}  // namespace
}  // namespace tidemark::optimizer_step_test
