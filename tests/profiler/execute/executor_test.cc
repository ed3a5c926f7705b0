// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "profiler/execute/exact_program.h"
#include "profiler/execute/numerics.h"
#include "tests/profiler/execute/executed_job.h"

namespace tidemark::executor_test {
namespace {

const std::vector<std::string> kExecuted = {
    "ddp-every",
    "ddp-last",
    "ddp-forward-outside",
    "colossalai-ddp",
    "single-backward",
    "nanotron",
    "megatron",
    "fsdp2-scatter-each",
    "fsdp2-defer",
    "fsdp2-keep-after-backward",
    "fsdp2-keep-all",
    "jax-scan",
    "jax-scan-stacked",
    "jax-multisteps",
    "alpa",
    "alpa-style1",
    "alpa-style2",
    "fsdp1",
    "fsdp1-no-sync",
    "colossalai-zero1",
    "colossalai-zero2",
    "alpa-zero2",
    "megatron-dist-opt",
    "deepspeed-zero0",
    "deepspeed-zero1",
    "deepspeed-zero2",
    "deepspeed-bf16",
    "deepspeed-coalesce",
    "deepspeed-zero3",
    "colossalai-gemini",
};

ParameterParts GradientsOf(const Job& job, bool exact) {
  return Executed(job, 1, {.seed = 7, .exact = exact, .keep_gradients = true}).gradients;
}

double DistanceFromOneBatch(const Job& job, const ParameterParts& gradients) {
  const Model model = *Model::Of(job, {0, 1});
  EXPECT_FALSE(gradients.empty());
  const RunOptions exact{.seed = 7, .exact = true, .keep_gradients = true};
  return DistanceOf(model, gradients, Reference(OneBatch(job), 1, exact).gradients, kExactFloor).highest;
}

class EveryExecutedStrategy : public testing::TestWithParam<std::string> {};

TEST_P(EveryExecutedStrategy, AllocatesWhatWasPredictedEventByEvent) {
  const Job job = SmallJob(GetParam());
  const RunOutcome run = Executed(job, 3);
  PredictOptions options;
  options.steps = FirstSteps(3);
  const Prediction prediction = *Predict(job, options);
  const Trace& predicted = *prediction.roles.front().trace;
  ASSERT_EQ(predicted.memory.size(), run.trace.memory.size());
  for (std::size_t i = 0; i < predicted.memory.size(); ++i) {
    const MemoryEvent &expected = predicted.memory[i], &found = run.trace.memory[i];
    const TraceTensor& tensor = predicted.tensors[expected.tensor.index];
    const TraceTensor& made = run.trace.tensors[found.tensor.index];
    ASSERT_EQ(tensor.name, made.name) << "event " << i;
    ASSERT_EQ(tensor.bytes, made.bytes) << tensor.name;
    ASSERT_EQ(tensor.dtype, made.dtype) << tensor.name;
    ASSERT_EQ(expected.alloc, found.alloc) << tensor.name;
    ASSERT_EQ(expected.allocator_bytes, found.allocator_bytes) << tensor.name;
    ASSERT_EQ(expected.reserved_bytes, found.reserved_bytes) << tensor.name;
  }
  EXPECT_EQ(run.reserved_peak, *prediction.roles.front().reserved);
}

TEST_P(EveryExecutedStrategy, TakesInFp64WhatItsExactProgramSays) {
  Job job = SmallJob(GetParam());
  job.allocator.kind = AllocatorKind::exact;  // whose bytes are those of its tensors
  std::vector<LoweredRun> lowered = *LowerRuns(job, FirstSteps(1));
  lowered.front().program = ExactProgram(lowered.front().program);
  EXPECT_EQ(Executed(job, 1, Exact()).allocator_peak, EvaluateClosedForm(lowered).whole.roles.front().allocated);
}

TEST_P(EveryExecutedStrategy, HasTheGradientsOfOneBigBatchInFp64) {
  const Job job = SmallJob(GetParam());
  EXPECT_LT(DistanceFromOneBatch(job, GradientsOf(job, true)), BoundOf(DType::fp64, 0));
}

TEST_P(EveryExecutedStrategy, HasGradientsWithinTheBoundOfItsPrecision) {
  const Job job = SmallJob(GetParam());
  LoweredSteps lowered(job, 1);
  const double bound = BoundOf(DType::bf16, RoundingsOf(lowered.first(), job.accumulation_steps, 1));
  const double distance = DistanceFromOneBatch(job, GradientsOf(job, false));
  EXPECT_GT(distance, BoundOf(DType::fp64, 0));  // it is not the fp64 run
  EXPECT_LT(distance, bound);
}

// A control: the same bound must tell a step that has lost a microbatch.
TEST_P(EveryExecutedStrategy, ExceedsTheBoundWithoutOneOfItsMicrobatches) {
  Job job = SmallJob(GetParam());
  LoweredSteps lowered(job, 1);
  const double bound = BoundOf(DType::bf16, RoundingsOf(lowered.first(), job.accumulation_steps, 1));
  Job lost = job;
  lost.accumulation_steps = 1;
  EXPECT_GT(DistanceFromOneBatch(job, GradientsOf(lost, false)), bound);
}

// In fp64, where masters and moments lie and how gradients came together makes no difference to what is learned: three
// steps, updated and clipped (the norm of all gradients is above 0.01), must have the losses of data parallelism.
TEST_P(EveryExecutedStrategy, UpdatesParametersAsPlainDataParallelismDoes) {
  Job job = SmallJob(GetParam()), plain = SmallJob("ddp-every");
  job.axes.optimizer_step.clip_norm = 0.01;
  const auto clipped = LowerRuns(job, FirstSteps(1));
  const RunStep first{clipped.ok() ? &clipped->front().program : nullptr, "first"};
  if (!clipped.ok() ||
      !CheckExecutable(job, std::span(&first, 1), {}).ok()) {  // a system's own way, not modelled or run
    job.axes.optimizer_step.clip_norm = 0;
  }
  plain.axes.optimizer_step.clip_norm = job.axes.optimizer_step.clip_norm;
  plain.network = job.network;
  plain.axes.packing = job.axes.packing;
  const RunOutcome run = Executed(job, 4, {.seed = 7, .exact = true});
  const RunOutcome reference = Executed(plain, 4, {.seed = 7, .exact = true});
  for (std::size_t step = 0; step < 4; ++step) {
    EXPECT_NEAR(*run.steps[step].loss, *reference.steps[step].loss, 1e-10) << "step " << step;
  }
}

TEST_P(EveryExecutedStrategy, HasTheSameGradientsBitForBitWhenItComputesAgain) {
  Job job = SmallJob(GetParam());
  std::get<Decoder>(job.network.shape).dropout = 0.25;  // whose masks must come back
  const ParameterParts kept = GradientsOf(job, false);
  const std::size_t kernels = Executed(job, 1).trace.slices.size();
  for (const auto policy :
       {Recompute::Policy::full, Recompute::Policy::selective, Recompute::Policy::every_n, Recompute::Policy::per_op}) {
    job.axes.recompute.policy = policy;
    for (const bool needed_only : {false, true}) {
      job.axes.recompute.needed_only = needed_only;
      EXPECT_EQ(GradientsOf(job, false), kept);
      EXPECT_GT(Executed(job, 1).trace.slices.size(), kernels);  // it does compute more
    }
  }
}

// One backward pass through all graphs comes to the first microbatch last.
TEST_P(EveryExecutedStrategy, ChangesParametersAfterTheLastBackwardPass) {
  const std::int64_t last = GetParam() == "single-backward" ? 0 : 1;
  const RunOutcome run = Executed(SmallJob(GetParam()), 2);
  for (const StepOutcome& step : run.steps) {
    EXPECT_EQ(step.parameters_changed_at, std::vector<std::int64_t>{last});
  }
}

INSTANTIATE_TEST_SUITE_P(Execute, EveryExecutedStrategy, testing::ValuesIn(kExecuted), StrategyName);

// Programs that are wrong must not go unnoticed. Each of these is a mutation of a right one.

template <class Leaf>
std::size_t First(const Program& program, bool (*wanted)(const Program&, const Leaf&)) {
  const auto found = std::find_if(program.nodes.begin(), program.nodes.end(), [&](const Node& node) {
    const auto* leaf = std::get_if<Leaf>(&node);
    return leaf != nullptr && wanted(program, *leaf);
  });
  EXPECT_NE(found, program.nodes.end());
  return static_cast<std::size_t>(found - program.nodes.begin());
}

const std::string& NameOf(const Program& program, const BufferRef& ref) {
  return program.buffers[ref.buffer.index].name;
}

bool FreesLogits(const Program& program, const Free& leaf) { return NameOf(program, leaf.buffer) == "head.logits"; }

TEST(Executor, RefusesAProgramThatHasABufferOfAnotherDtype) {
  const Job job = SmallJob("ddp-last");
  LoweredSteps lowered(job, 1);
  for (Buffer& buffer : lowered.first().buffers) {
    if (buffer.name == "layer.q") {
      buffer.dtype = DType::fp32;
    }
  }
  const auto run = RunAlone(job, lowered.steps());
  ASSERT_FALSE(run.ok());
  EXPECT_EQ(run.error().code, ErrorCode::internal);
  EXPECT_NE(run.error().message.find("'layer.wq.forward' makes 'layer.q'"), std::string::npos) << run.error().message;
}

TEST(Executor, RefusesAProgramThatHasABufferOfAnotherSize) {
  const Job job = SmallJob("ddp-last");
  LoweredSteps lowered(job, 1);
  for (Buffer& buffer : lowered.first().buffers) {
    buffer.elements += buffer.name == "layer.gate_up" || buffer.name == "layer.gate" ? 8 : 0;
  }
  const auto run = RunAlone(job, lowered.steps());
  ASSERT_FALSE(run.ok());
  EXPECT_NE(run.error().message.find("for which the program has a buffer of"), std::string::npos)
      << run.error().message;
}

TEST(Executor, RefusesAProgramWhoseOptimizerKeepsOtherNumbers) {
  Job job = SmallJob("nanotron");
  for (const char* name : {"first moment of layer", "master weights of layer"}) {
    for (const bool wider : {false, true}) {
      LoweredSteps lowered(job, 1);
      for (Buffer& buffer : lowered.first().buffers) {
        if (buffer.name.starts_with(name)) {
          buffer.dtype = wider ? DType::fp64 : buffer.dtype;
          buffer.elements *= wider ? 1 : 2;
        }
      }
      const auto run = RunAlone(job, lowered.steps());
      ASSERT_FALSE(run.ok()) << name;
      EXPECT_EQ(run.error().code, ErrorCode::internal);
    }
  }
}

TEST(Executor, DropsTheSameElementsHoweverABatchIsCut) {
  Job job = SmallJob("ddp-last");
  std::get<Decoder>(job.network.shape).dropout = 0.25;
  EXPECT_LT(DistanceFromOneBatch(job, GradientsOf(job, true)), BoundOf(DType::fp64, 0));
  Job without = job;
  std::get<Decoder>(without.network.shape).dropout = 0;
  EXPECT_GT(DistanceFromOneBatch(job, GradientsOf(without, true)), 0.01);  // it does drop something
}

TEST(Executor, TakesFromTheSystemWhatTheAllocatorReserves) {
  for (const AllocatorKind kind : {AllocatorKind::torch_caching, AllocatorKind::cuda_async}) {
    Job job = SmallJob("ddp-last");
    job.allocator.kind = kind;
    const RunOutcome run = Executed(job, 3);
    EXPECT_EQ(run.mapped_peak, run.reserved_peak);
    PredictOptions options;
    options.steps = FirstSteps(3);
    EXPECT_EQ(run.reserved_peak, *Predict(job, options)->roles.front().reserved);
  }
}

TEST(Executor, EndsAStepThatRunsOutOfMemory) {
  const Job job = SmallJob("ddp-last");
  const RunOutcome enough = Executed(job, 1);
  for (const Bytes capacity : {Bytes(1 << 20), Bytes(enough.reserved_peak.count() - 1)}) {
    const RunOutcome run = Executed(job, 1, {.capacity = capacity, .keep_gradients = true});
    EXPECT_TRUE(run.ran_out);
    ASSERT_TRUE(run.steps.back().out_of_memory.has_value());
    EXPECT_EQ(Verify(run.trace), "");
  }
}

TEST(Executor, RefusesAKernelWithoutOneOfItsTransients) {
  const Job job = SmallJob("ddp-last");
  LoweredSteps lowered(job, 1);
  for (Node& node : lowered.first().nodes) {
    auto* compute = std::get_if<Compute>(&node);
    if (compute != nullptr && std::holds_alternative<Attention>(compute->op) && compute->writes.size() == 5) {
      compute->writes.pop_back();  // delta
    }
  }
  const auto run = RunAlone(job, lowered.steps());
  ASSERT_FALSE(run.ok());
  EXPECT_NE(run.error().message.find("makes 5 tensors"), std::string::npos) << run.error().message;
}

TEST(Executor, MeasuresAHigherPeakWhereABufferIsFreedLater) {
  Job job = SmallJob("ddp-every");
  job.accumulation_steps = 1;
  std::get<Decoder>(job.network.shape).vocabulary = 1024;  // so that logits decide the peak
  job.sequence_length = 128;
  const Bytes right = Executed(job, 1).allocator_peak;
  LoweredSteps lowered(job, 1);
  std::vector<Node>& nodes = lowered.first().nodes;
  const std::size_t at = First<Free>(lowered.first(), FreesLogits);
  const Node free = nodes[at];
  nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(at));
  const std::size_t end =
      First<End>(lowered.first(), [](const Program&, const End& leaf) { return leaf.phase == Phase::backward; });
  nodes.insert(nodes.begin() + static_cast<std::ptrdiff_t>(end), free);
  const auto run = RunAlone(job, lowered.steps());
  ASSERT_TRUE(run.ok()) << run.error().Text();
  EXPECT_EQ(run->allocator_peak, right + Bytes(2 * 256 * 1024));  // logits of 256 tokens in bf16
}

TEST(Executor, RefusesAProgramThatFreesABufferTooEarly) {
  const Job job = SmallJob("ddp-last");
  LoweredSteps lowered(job, 1);
  std::vector<Node>& nodes = lowered.first().nodes;
  const std::size_t at = First<Free>(lowered.first(), FreesLogits);
  const Node free = nodes[at];
  nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(at));
  const std::size_t read = First<Compute>(lowered.first(), [](const Program& program, const Compute& compute) {
    return program.names[compute.name.index] == "head.logits.upcast";
  });
  nodes.insert(nodes.begin() + static_cast<std::ptrdiff_t>(read), free);
  const auto run = RunAlone(job, lowered.steps());
  ASSERT_FALSE(run.ok());
  EXPECT_NE(run.error().message.find("reads 'head.logits'"), std::string::npos) << run.error().message;
}

TEST(Executor, ComputesWrongNumbersWhereAKernelLosesWhatAnotherWrote) {
  const Job job = SmallJob("ddp-last");
  LoweredSteps lowered(job, 1);
  for (Node& node : lowered.first().nodes) {
    auto* compute = std::get_if<Compute>(&node);
    if (compute != nullptr && lowered.first().names[compute->name.index] == "accumulate gradient") {
      compute->reads[0] = compute->reads[1];  // the running sum once more in place of the new gradient
    }
  }
  const auto run = RunAlone(job, lowered.steps(), {.seed = 7, .exact = true, .keep_gradients = true});
  ASSERT_TRUE(run.ok()) << run.error().Text();
  EXPECT_GT(DistanceFromOneBatch(job, run->gradients), 0.1);
}

// Two windows in a step are two updates: AdamW's second one has its own bias correction. The same four microbatches as
// four steps change parameters alike, but for the scale of the loss, which AdamW divides out down to its epsilon.
TEST(Executor, CountsUpdatesNotSteps) {
  Job windows = SmallJob("ddp-every");
  windows.axes.sync.when = Sync::When::custom;
  windows.axes.sync.expression = "True";
  Job steps = SmallJob("ddp-every");
  steps.accumulation_steps = 1;
  const RunOutcome two = Executed(windows, 2, {.exact = true}), four = Executed(steps, 4, {.exact = true});
  EXPECT_EQ(two.steps.front().parameters_changed_at, (std::vector<std::int64_t>{0, 1}));
  for (std::size_t i = 0; i < 2; ++i) {
    const double mean = (*four.steps[2 * i].loss + *four.steps[2 * i + 1].loss) / 2;
    EXPECT_NEAR(*two.steps[i].loss, mean, 1e-5) << "step " << i;
  }
}

TEST(Executor, LearnsAText) {
  Job job = SmallJob("ddp-last");
  std::get<Decoder>(job.network.shape).vocabulary = 256;
  std::string text;
  for (int i = 0; i < 64; ++i) {
    text += "abcdefgh";
  }
  const RunOutcome run = Executed(job, 30, {.text = text});
  EXPECT_NEAR(run.steps.front().loss.value(), std::log(256.0), 0.1);  // knows nothing: all bytes are as likely
  EXPECT_LT(run.steps.back().loss.value(), 4.0);
}

}  // namespace
}  // namespace tidemark::executor_test
