// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "sim/program/text.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::forward_gathers_test {
namespace {

// Weights that are gathered in the next step's first forward pass (--overlap-param-gather) are those that would have
// been gathered before it.

constexpr std::int64_t kSteps = 4;

Job TwoRanks(std::int64_t bucket_elements) {
  Job job = SmallJob("megatron-dist-opt");
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.hidden = 128;  // an even number of aligned parts: both ranks run one program
  decoder.head_size = 32;
  job.layout.dp = 2;
  job.axes.sync.bucket_elements = bucket_elements;
  return job;
}

std::vector<double> LossesOf(const std::vector<RunOutcome>& ranks) {
  std::vector<double> losses;
  for (const RunOutcome& rank : ranks) {
    for (const StepOutcome& step : rank.steps) {
      losses.push_back(step.loss.value_or(0));
    }
  }
  return losses;
}

void ExpectTheSameLosses(Job job) {
  const RunOptions exact{.seed = 7, .exact = true};
  const std::vector<double> behind = LossesOf(ExecutedTogether(job, kSteps, exact));
  job.axes.sync.overlap_gather = true;
  EXPECT_EQ(LossesOf(ExecutedTogether(job, kSteps, exact)), behind);
  EXPECT_NE(behind.front(), behind[kSteps - 1]);  // it learns
}

TEST(ForwardGathers, LearnAsGathersBehindTheUpdate) {
  for (const std::int64_t elements : {1'000, 100'000, 0}) {
    ExpectTheSameLosses(TwoRanks(elements));
  }
}

TEST(ForwardGathers, LearnTheSameInChunksOfAPipeline) {
  Job job = TwoRanks(50'000);
  std::get<Decoder>(job.network.shape).layers = 4;
  job.accumulation_steps = 2;
  job.layout.pp = 2;
  ExpectTheSameLosses(job);
  job.layout.vpp = 2;
  job.schedule = Schedule::interleaved;
  ExpectTheSameLosses(job);
}

TEST(ForwardGathers, AreMissedWhereThereAreNone) {
  Job job = TwoRanks(0);
  const RunOptions exact{.seed = 7, .exact = true};
  const std::vector<double> right = LossesOf(ExecutedTogether(job, kSteps, exact));
  job.axes.sync.overlap_gather = true;
  std::vector<LoweredRun> runs = *LowerRuns(job, FirstSteps(kSteps), 0);
  std::vector<RunStep> steps;
  for (LoweredRun& run : runs) {
    Program& program = run.program.roles.front();
    program = Unroll(program);
    std::erase_if(program.nodes, [](const Node& node) {
      const auto* collective = std::get_if<Collective>(&node);
      return collective != nullptr && collective->kind == CollectiveKind::all_gather;
    });
    steps.insert(steps.end(), static_cast<std::size_t>(run.run.count), {&run.program, "step"});
  }
  const std::vector<double> stale = LossesOf(RunTogether(job, steps, exact));
  EXPECT_EQ(stale.front(), right.front());
  EXPECT_GT(std::abs(stale[kSteps - 1] - right[kSteps - 1]), 1e-6);
}

}  // namespace
}  // namespace tidemark::forward_gathers_test
