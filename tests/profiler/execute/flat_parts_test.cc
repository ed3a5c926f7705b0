// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::flat_parts_test {
namespace {

Job TwoRanks() {
  Job job = SmallJob("colossalai-zero2");
  job.layout.dp = 2;
  return job;
}

/// The first step, where what the first bucket's flat buffer holds is something else.
LoweredSteps Changed(const Job& job, const std::function<void(Holding&)>& change) {
  LoweredSteps lowered(job, 1);
  for (Buffer& buffer : lowered.first().buffers) {
    if (buffer.name == "flat gradients 0") {
      change(buffer.holds.front());
    }
  }
  return lowered;
}

std::vector<ParameterParts> GradientsOf(const Job& job, const LoweredSteps& lowered) {
  std::vector<ParameterParts> gradients;
  for (RunOutcome& run : RunTogether(job, lowered.steps(), {.seed = 7, .exact = true, .keep_gradients = true})) {
    gradients.push_back(std::move(run.gradients));
  }
  return gradients;
}

// Collectives move bytes: what lies where another rank has something else is added to the wrong numbers.
TEST(FlatParts, InAnotherOrderThanTheOneThatIsStoredMakeOtherGradients) {
  const Job job = TwoRanks();
  const std::vector<ParameterParts> right = GradientsOf(job, LoweredSteps(job, 1));
  EXPECT_EQ(GradientsOf(job, LoweredSteps(job, 1)), right);
  EXPECT_NE(GradientsOf(job, Changed(job, [](Holding& holding) { std::swap(holding.of[0], holding.of[1]); })), right);
}

TEST(FlatParts, ThatDoNotFillTheirBufferAreRefused) {
  const Job job = TwoRanks();
  EXPECT_TRUE(CheckExecutable(job, LoweredSteps(job, 1).steps(), {}).ok());
  const auto refused = [&](const std::function<void(Holding&)>& change) {
    return !CheckExecutable(job, Changed(job, change).steps(), {}).ok();
  };
  EXPECT_TRUE(refused([](Holding& holding) { holding.of.pop_back(); }));
  EXPECT_TRUE(refused([](Holding& holding) { holding.parts = Parts::own; }));
}

}  // namespace
}  // namespace tidemark::flat_parts_test
