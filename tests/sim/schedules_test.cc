// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/engine/closed_form.h"
#include "sim/engine/simulate.h"
#include "sim/lower/lifetime.h"
#include "sim/lower/lower.h"
#include "sim/lower/split_backward.h"
#include "sim/lower/stage.h"
#include "sim/predict/audit.h"
#include "sim/program/verify.h"
#include "sim/program/verify_gradients.h"
#include "sim/program/walk.h"
#include "sim/schedules/pipeline_schedule.h"
#include "tests/base/sanitizer.h"
#include "tests/sim/highest.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::schedules_test {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

/// One layer per stage; no tensor parallelism.
Job PipelineJob(Schedule schedule, std::int64_t ranks, std::int64_t microbatches, std::int64_t chunks = 1) {
  Job job = OracleJob("nanotron", microbatches);
  job.layout.pp = ranks;
  job.layout.vpp = chunks;
  job.layout.dp = 1;
  job.schedule = schedule;
  std::get<Decoder>(job.network.shape).layers = ranks * chunks;
  return job;
}

StepProgram Lowered(const Job& job, StepKind step = StepKind::steady) {
  Result<StepProgram> program = Lower(job, step);
  EXPECT_TRUE(program.ok()) << program.error().Text();
  return program ? std::move(*program) : StepProgram{};
}

/// How many of a saved tensor each rank holds at most: stage passes in flight.
std::vector<std::int64_t> InFlight(const Job& job, const std::string& tensor) {
  return HighestOf(Lowered(job), job.machine,
                   [&](const Buffer& buffer) { return buffer.name.ends_with(tensor) ? 1 : 0; });
}

/// The most bytes of a category that each rank holds.
std::vector<std::int64_t> HighestBytes(const Job& job, Category category) {
  return HighestBytes(Lowered(job), job.machine, category);
}

// What the attention saves for its backward pass (.lse) is in flight until B; the input of a linear layer (.qkv_in)
// until W. Numbers: semantics section 8, p = 4, m = 8 and p = 8, m = 20.
TEST(Schedules, HoldAsManyMicrobatchesAsTheirPapersSay) {
  EXPECT_THAT(InFlight(PipelineJob(Schedule::gpipe, 4, 8), ".lse"), ElementsAre(8, 8, 8, 8));
  EXPECT_THAT(InFlight(PipelineJob(Schedule::one_f_one_b, 4, 8), ".lse"), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(InFlight(PipelineJob(Schedule::interleaved, 4, 8, 2), ".lse"), ElementsAre(11, 9, 7, 5));
  EXPECT_THAT(InFlight(PipelineJob(Schedule::dualpipe, 4, 8), ".lse"), ElementsAre(5, 5, 5, 5));
  EXPECT_THAT(InFlight(PipelineJob(Schedule::dualpipe, 8, 20), ".lse"), Each(9));
  // min(m v, 2 (p - r - 1) + (v - 1) p + 1) chunks.
  EXPECT_THAT(InFlight(PipelineJob(Schedule::interleaved, 4, 8, 3), ".lse"), ElementsAre(15, 13, 11, 9));
  EXPECT_THAT(InFlight(PipelineJob(Schedule::interleaved, 4, 4, 2), ".lse"), ElementsAre(8, 8, 7, 5));
  // Fewer microbatches than stages.
  EXPECT_THAT(InFlight(PipelineJob(Schedule::one_f_one_b, 4, 3), ".lse"), ElementsAre(3, 3, 2, 1));
}

TEST(Schedules, ZeroBubbleHoldsWhatTheWeightGradientsNeedLonger) {
  EXPECT_THAT(InFlight(PipelineJob(Schedule::zb_h1, 4, 8), ".lse"), ElementsAre(4, 3, 2, 1));
  EXPECT_THAT(InFlight(PipelineJob(Schedule::zb_h1, 4, 8), ".qkv_in"), ElementsAre(4, 4, 4, 4));
  EXPECT_THAT(InFlight(PipelineJob(Schedule::zb_h1, 8, 20), ".qkv_in"), Each(8));
  EXPECT_THAT(InFlight(PipelineJob(Schedule::zb_h2, 4, 8), ".lse"), ElementsAre(7, 5, 3, 1));
  EXPECT_THAT(InFlight(PipelineJob(Schedule::zb_h2, 4, 8), ".qkv_in"), Each(7));
  EXPECT_THAT(InFlight(PipelineJob(Schedule::zb_h2, 8, 20), ".qkv_in"), Each(15));
}

// Semantics, section 8: what a microbatch keeps per layer between B and W is the linear layers' inputs, which were
// saved already, and the gradients of their outputs, those of the row-parallel ones gathered. n = 4,096 tokens, h =
// 1,024, k/a = 1/4, f = 2,816, t = 2, sequence parallel; gathered inputs are gathered again with W.
TEST(Schedules, WeightGradientsThatWaitKeepInputsAndOutputGradients) {
  Job job = OracleJob("megatron", 8);
  job.layout.tp = 2;
  job.layout.sp = true;
  const std::vector<Stage> stages = *CutIntoStages(job);
  const SplitBlock split = SplitBackward(stages.front().BlockAt(1), DType::bf16);
  const std::vector<Lifetime> lifetimes = LifetimesOf(split.block);
  const std::size_t weights = split.block.forward.size() + split.weights;
  std::int64_t kept = 0;
  for (std::size_t i = 0; i < lifetimes.size(); ++i) {
    const Tensor& tensor = split.block.tensors[i];
    const bool waits = lifetimes[i].birth < weights && lifetimes[i].death >= weights;
    kept += waits ? (SizeOf(tensor.dtype) * tensor.elements).count() : 0;
  }
  const std::int64_t inputs = 3 * (2 * 4096 * 1024 / 2) + 2 * 4096 * 2816 / 2;
  const std::int64_t column_outputs = 2 * 4096 * (1024 + 2 * 256) / 2 + 4 * 4096 * 2816 / 2;
  const std::int64_t row_outputs = 2 * (2 * 4096 * 1024);
  const std::int64_t norms = 2 * (2 * 1024);  // gradients that wait to be handed over
  EXPECT_EQ(kept, inputs + column_outputs + row_outputs + norms);
}

/// Durations of one stage's passes.
struct PassTimes {
  std::int64_t forward, input, weight;
};

/// The step where a layer's passes last as given, an update of a stage as many times `update` as the stage's index
/// says, and everything else takes none.
tidemark::StepTime TimeOf(const Job& job, const PassTimes& times, std::int64_t update = 0) {
  const StepProgram program = Lowered(job);
  std::vector<Costs> all;
  for (const Program& role : program.roles) {
    Costs costs = Price(role, job.machine);
    costs.host_issue = Nanos(0);
    for (std::size_t i = 0; i < role.nodes.size(); ++i) {
      const auto* kernel = std::get_if<Compute>(&role.nodes[i]);
      const std::string& name = kernel == nullptr ? std::string() : role.names[kernel->name.index];
      const auto ends = [&](const char* end) { return name.ends_with(end); };
      costs.device[i] =
          Nanos(ends("layer.attention.forward")                        ? times.forward
                : ends("layer.attention.backward")                     ? times.input
                : ends("layer.down.weight_gradient")                   ? times.weight
                : kernel != nullptr && kernel->work == Work::optimizer ? update * static_cast<std::int64_t>(all.size())
                                                                       : 0);
    }
    all.push_back(std::move(costs));
  }
  const tidemark::StepTime simulated = Simulate(program, all, {}).time;
  EXPECT_EQ(FoldTime(program, all), simulated);
  return simulated;
}

std::int64_t StepTime(const Job& job, const PassTimes& times) { return TimeOf(job, times).step.count(); }

// The first stage's backward pass ends p - 1 of them behind the last stage's; an update may take longer than that.
TEST(Schedules, TheStageThatEndsAStepIsNamed) {
  for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b, Schedule::zb_h1}) {
    const Job job = PipelineJob(schedule, 4, 8);
    EXPECT_EQ(TimeOf(job, {10, 9, 8}).role, 0);
    EXPECT_EQ(TimeOf(job, {0, 0, 0}).role, 0);  // of several that end together the lowest
    EXPECT_EQ(TimeOf(job, {10, 9, 8}, 1000).role, 3);
  }
}

// Semantics, section 8, with B including W: GPipe and 1F1B (p - 1) (F + B); interleaved the same / v; ZB-H1
// (p - 1) (F + B - 2 W).
TEST(Schedules, LeaveTheBubbleOfTheirClosedForms) {
  const PassTimes times{10, 9, 8};
  const std::int64_t pass = 10 + 9 + 8;
  for (const auto& [ranks, microbatches] : {std::pair(4, 8), std::pair(8, 24)}) {
    const auto bubble = [&, p = ranks, m = microbatches](Schedule schedule, std::int64_t chunks = 1) {
      return StepTime(PipelineJob(schedule, p, m, chunks), times) - m * chunks * pass;
    };
    EXPECT_EQ(bubble(Schedule::gpipe), (ranks - 1) * pass);
    EXPECT_EQ(bubble(Schedule::one_f_one_b), (ranks - 1) * pass);
    // Each chunk is one v-th of a stage: in passes of a chunk the bubble is p - 1 of them.
    EXPECT_EQ(bubble(Schedule::interleaved, 2), (ranks - 1) * pass);
    EXPECT_EQ(bubble(Schedule::zb_h1), (ranks - 1) * (pass - 2 * 8));
    // No rank waits between its first and its last pass; the last one begins p - 1 forward passes late.
    EXPECT_EQ(bubble(Schedule::zb_h2), (ranks - 1) * 10);
  }
}

// github.com/deepseek-ai/DualPipe: (p / 2 - 1) (F&B + B - 3 W), B including W. Exact where F, the two parts of B and W
// last alike; a rank holds two stages, each of which does half of the microbatches.
TEST(Schedules, DualPipeLeavesItsOwnBubble) {
  for (const auto& [ranks, microbatches] : {std::pair(4, 8), std::pair(8, 20), std::pair(4, 16)}) {
    const Job job = PipelineJob(Schedule::dualpipe, ranks, microbatches);
    EXPECT_EQ(StepTime(job, {10, 10, 10}) - microbatches * 30, (ranks / 2 - 1) * (30 + 20 - 30));
  }
}

TEST(Schedules, EveryProgramIsSoundAndBothEnginesAgree) {
  for (const char* strategy :
       {"nanotron", "megatron", "megatron-dist-opt", "ddp-last", "alpa", "deepspeed-zero1", "fsdp2-keep-all"}) {
    for (const PipelineSchedule& schedule : AllSchedules()) {
      for (const StepKind step : AllOrLast({StepKind::first, StepKind::second, StepKind::steady})) {
        Job job = OracleJob(strategy, 8);
        job.layout.pp = 4;
        job.layout.dp = 2;
        job.layout.vpp = schedule.kind == Schedule::interleaved ? 3 : 1;
        job.schedule = schedule.kind;
        std::get<Decoder>(job.network.shape).layers = 24;
        const std::string where = std::string(strategy) + " " + schedule.name;
        const StepProgram program = Lowered(job, step);
        const std::vector<Finding> findings = Verify(program);
        EXPECT_TRUE(findings.empty()) << where << ": " << findings.front().message;
        const std::vector<Costs> costs = PriceAll(program, job.machine);
        EXPECT_EQ(EvaluateClosedForm(program, costs), Simulate(program, costs, {})) << where;
      }
    }
  }
}

// Semantics, section 8: Megatron frees a stage's output when it was sent, which saves 2 n h bytes per microbatch in
// flight, 2 * 4,096 * 1,024: of the four on stage 0 the one whose backward pass is the peak has let go of it anyway.
TEST(Schedules, MegatronLetsGoOfOutputsThatWereSent) {
  Job job = OracleJob("megatron", 8);
  job.layout.pp = 4;
  const std::int64_t frees = HighestBytes(job, Category::activation)[0];
  job.axes.buffers.deallocate_pipeline_outputs = false;
  EXPECT_EQ(HighestBytes(job, Category::activation)[0] - frees, 3 * 2 * 4096 * 1024);
}

// Semantics, section 8: parameters stay unsharded and gradients unsharded, in fp32, until all backward passes are
// done; then each unit is resharded and scattered. Stage 1 of 4 holds one layer: 1,048,576 (wq) + 2 * 262,144 (wk, wv)
// + 1,048,576 (wo) + 3 * 2,883,584 (gate, up, down) + 2 * 1,024 (norms).
TEST(Schedules, Fsdp2InAPipelineReducesBehindTheLastBackwardPass) {
  Job job = OracleJob("fsdp2-keep-all", 8);
  job.layout.pp = 4;
  const std::int64_t elements = 1'048'576 + 2 * 262'144 + 1'048'576 + 3 * 2'883'584 + 2 * 1'024;
  EXPECT_EQ(HighestBytes(job, Category::accumulator)[1], 4 * elements);
  std::int64_t gathers = 0, scatters = 0, backwards = 0, backwards_behind = 0;
  const Program role = Lowered(job).roles[1];
  ForEachLeaf(role, [&](std::size_t at, std::span<const std::int64_t>) {
    const auto* collective = std::get_if<Collective>(&role.nodes[at]);
    const auto* begin = std::get_if<Begin>(&role.nodes[at]);
    const bool begins_backward = begin != nullptr && begin->phase == Phase::backward;
    gathers += collective != nullptr && collective->kind == CollectiveKind::all_gather ? 1 : 0;
    scatters += collective != nullptr && collective->kind == CollectiveKind::reduce_scatter ? 1 : 0;
    backwards += begins_backward ? 1 : 0;
    backwards_behind += scatters > 0 && begins_backward ? 1 : 0;
    return true;
  });
  EXPECT_EQ(gathers, 1);
  EXPECT_EQ(scatters, 1);
  EXPECT_EQ(backwards, 8);
  EXPECT_EQ(backwards_behind, 0);
}

// A stage that two ranks hold gets each one's half of the microbatches from the other.
TEST(Schedules, EveryWindowIsTheMeanOfAllItsMicrobatches) {
  for (const char* strategy : {"nanotron", "megatron", "megatron-dist-opt", "ddp-last", "fsdp2-keep-all"}) {
    for (const PipelineSchedule& schedule : AllSchedules()) {
      for (const std::int64_t flushes : {1, 2}) {
        Job job = OracleJob(strategy, 8 * flushes);
        job.layout.pp = 4;
        job.layout.dp = 2;
        job.layout.vpp = schedule.kind == Schedule::interleaved ? 2 : 1;
        job.schedule = schedule.kind;
        job.pipeline_microbatches = 8;
        std::get<Decoder>(job.network.shape).layers = job.layout.Stages();
        const Result<JobAudit> audit = AuditJob(job, StepKind::steady);
        ASSERT_TRUE(audit.ok()) << audit.error().Text();
        const std::string where = std::string(strategy) + " " + schedule.name;
        EXPECT_TRUE(audit->hazards.empty()) << where;
        ASSERT_EQ(audit->windows.size(), 1U) << where;
        EXPECT_EQ(audit->windows[0].factor, Rational(1)) << where;
        EXPECT_TRUE(audit->windows[0].right()) << where;
      }
    }
  }
}

TEST(Schedules, WithoutTheExchangeAStageGetsHalfOfItsGradient) {
  StepProgram step = Lowered(PipelineJob(Schedule::dualpipe, 4, 8));
  for (Program& role : step.roles) {
    for (Node& node : role.nodes) {
      auto* kernel = std::get_if<Compute>(&node);
      if (kernel != nullptr && role.names[kernel->name.index].ends_with("add mirrored gradient")) {
        kernel->reads.resize(1);  // its own half only
      }
    }
  }
  Findings findings(20);
  const std::vector<WindowFactor> windows = CheckGradients(step, findings);
  ASSERT_EQ(windows.size(), 1U);
  EXPECT_EQ(windows[0].factor, Rational(1, 2));
  EXPECT_FALSE(windows[0].right());
}

TEST(Schedules, SeveralFlushesAreSeveralPipelinesOneBehindTheOther) {
  Job once = PipelineJob(Schedule::one_f_one_b, 4, 8);
  Job twice = PipelineJob(Schedule::one_f_one_b, 4, 16);
  twice.pipeline_microbatches = 8;
  EXPECT_EQ(InFlight(twice, ".lse"), InFlight(once, ".lse"));
  EXPECT_EQ(StepTime(twice, {10, 9, 8}), 2 * StepTime(once, {10, 9, 8}));
  EXPECT_TRUE(Verify(Lowered(twice)).empty());
}

TEST(Schedules, WhatTheyCannotDoIsRefusedWithAWayOut) {
  const auto refusal = [](Job job) {
    const Result<StepProgram> program = Lower(job, StepKind::steady);
    return program.ok() ? std::string() : program.error().Text();
  };
  EXPECT_THAT(refusal(PipelineJob(Schedule::interleaved, 4, 8, 1)), HasSubstr("at least two model chunks"));
  EXPECT_THAT(refusal(PipelineJob(Schedule::interleaved, 4, 6, 2)), HasSubstr("groups of 4"));
  EXPECT_THAT(refusal(PipelineJob(Schedule::one_f_one_b, 4, 8, 2)), HasSubstr("only the interleaved schedule"));
  EXPECT_THAT(refusal(PipelineJob(Schedule::dualpipe, 3, 8)), HasSubstr("even number of ranks"));
  EXPECT_THAT(refusal(PipelineJob(Schedule::dualpipe, 4, 6)), HasSubstr("at least 8"));
}

}  // namespace
}  // namespace tidemark::schedules_test
