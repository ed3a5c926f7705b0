// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::clip_ranges_test {
namespace {

// Megatron's distributed optimizer measures a range of each bucket on each rank, which begins and ends inside
// parameters; nanotron's ZeRO-1 a part of each parameter. The rest of a rank's gradients is its own, not reduced.

constexpr std::int64_t kSteps = 4;
/// So small that Adam's epsilon (1e-8) is as large as a clipped gradient: a norm that is wrong by a factor shows.
constexpr double kClipNorm = 1e-6;

std::vector<double> LossesOf(const RunOutcome& run) {
  std::vector<double> losses;
  for (const StepOutcome& step : run.steps) {
    losses.push_back(*step.loss);
  }
  return losses;
}

std::vector<double> OneRank(const Job& job, double clip_norm) {
  Job one = OneBatch(job);
  one.axes.optimizer_step.clip_norm = clip_norm;
  return LossesOf(Reference(one, kSteps, {.seed = 7, .exact = true}));
}

double Farthest(const std::vector<double>& some, const std::vector<double>& others) {
  double farthest = 0;
  for (std::size_t step = 0; step < some.size(); ++step) {
    farthest = std::max(farthest, std::abs(some[step] - others[step]));
  }
  return farthest;
}

struct Ranks {
  std::int64_t dp, tp;
};
constexpr std::array kRanks = {Ranks{1, 1}, Ranks{2, 1}, Ranks{4, 1}, Ranks{1, 2}, Ranks{2, 2}};
constexpr std::array kKernels = {OptimizerStep::Kernel::fused, OptimizerStep::Kernel::foreach_};

void LearnsAsOneRankDoes(Job job, Ranks ranks, OptimizerStep::Kernel kernel) {
  SCOPED_TRACE(testing::Message() << ranks.dp << " x " << ranks.tp << " ranks");
  job.layout.dp = ranks.dp;
  job.layout.tp = ranks.tp;
  job.axes.optimizer_step.kernel = kernel;
  job.axes.optimizer_step.clip_norm = kClipNorm;
  const std::vector<double> clipped = OneRank(job, kClipNorm);
  for (const RunOutcome& run : RunTogether(job.Ranks(), [&](World& world) {
         const LoweredSteps own(job, kSteps, ShardOf(job, world.rank()));  // of parts of unlike size
         return RunSteps(job, own.steps(), {.seed = 7, .exact = true}, world);
       })) {
    EXPECT_LT(Farthest(LossesOf(run), clipped), 1e-10);
  }
  EXPECT_GT(Farthest(OneRank(job, kClipNorm * 1.01), clipped), 1e-7);  // a control: another norm is seen
}

TEST(ClippedRanges, LearnAsOneRankDoes) {
  for (const Ranks ranks : kRanks) {
    for (const std::int64_t bucket : {5000, 1'000'000}) {
      for (const auto kernel : kKernels) {
        Job job = SmallJob("megatron-dist-opt");
        job.axes.sync.bucket_elements = bucket;
        LearnsAsOneRankDoes(std::move(job), ranks, kernel);
      }
    }
  }
}

TEST(ClippedParts, LearnAsOneRankDoes) {
  for (const Ranks ranks : kRanks) {
    for (const auto kernel : kKernels) {
      Job job = SmallJob("nanotron");
      job.axes.shard.optimizer = true;
      LearnsAsOneRankDoes(std::move(job), ranks, kernel);
    }
  }
}

}  // namespace
}  // namespace tidemark::clip_ranges_test
