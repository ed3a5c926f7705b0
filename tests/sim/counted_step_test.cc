// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/counted_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/engine/closed_form.h"
#include "sim/lower/lower.h"
#include "tests/sim/oracle_job.h"

namespace tidemark {
namespace {

struct Lowered {
  StepProgram program;
  std::vector<Costs> costs;
};

std::optional<Lowered> LoweredWith(Job job, std::int64_t microbatches) {
  job.accumulation_steps = microbatches;
  Result<StepProgram> program = Lower(job, StepKind::steady);
  if (!program) {
    return std::nullopt;
  }
  std::vector<Costs> costs = PriceAll(*program, job.machine);
  return Lowered{std::move(*program), std::move(costs)};
}

std::optional<CountedStep> Between(const Job& job, std::int64_t low, std::int64_t high) {
  const auto first = LoweredWith(job, low), last = LoweredWith(job, high);
  return first && last ? CountedStep::Of(first->program, first->costs, last->program, last->costs) : std::nullopt;
}

class CountedSteps : public ::testing::TestWithParam<std::string> {};

std::vector<std::string> StrategyNames() {
  std::vector<std::string> names;
  for (const Strategy& strategy : AllStrategies()) {
    names.push_back(strategy.defaults.name);
  }
  return names;
}

// Every number of microbatches is evaluated by itself and as one of many. A slow host, a slow network and a slow
// device each decide other choices.
TEST_P(CountedSteps, EqualTheClosedFormOfEach) {
  constexpr std::int64_t kLow = 6, kHigh = 40;
  for (const int slow : {0, 1, 2}) {
    Job job = OracleJob(GetParam(), kLow);
    job.machine.host_issue = Nanos(slow == 1 ? 200'000 : 5'000);
    job.machine.inter_node.bandwidth = job.machine.intra_node.bandwidth = BytesPerSec(slow == 2 ? 1e9 : 4e11);
    const auto counted = Between(job, kLow, kHigh);
    if (!counted) {
      return;  // MostStrategiesAreCounted says which
    }
    ASSERT_EQ((counted->high() - counted->low()) % (kHigh - kLow), 0);
    const std::int64_t each = (counted->high() - counted->low()) / (kHigh - kLow);
    std::vector<std::int64_t> counts;
    for (std::int64_t microbatches = kLow; microbatches <= kHigh; ++microbatches) {
      counts.push_back(counted->low() + (microbatches - kLow) * each);
    }
    const std::vector<Evaluation> all = counted->Evaluate(counts);
    ASSERT_EQ(all.size(), counts.size());
    for (std::int64_t microbatches = kLow; microbatches <= kHigh; ++microbatches) {
      const auto one = LoweredWith(job, microbatches);
      ASSERT_TRUE(one);
      EXPECT_TRUE(all[static_cast<std::size_t>(microbatches - kLow)] == EvaluateClosedForm(one->program, one->costs))
          << microbatches << " microbatches, " << slow;
    }
  }
}

std::string TestName(const ::testing::TestParamInfo<std::string>& strategy) {
  std::string name = strategy.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, CountedSteps, ::testing::ValuesIn(StrategyNames()), TestName);

TEST(CountedStep, MostStrategiesAreCounted) {
  std::vector<std::string> alone;
  for (const std::string& name : StrategyNames()) {
    if (!Between(OracleJob(name, 6), 6, 40)) {
      alone.push_back(name);
    }
  }
  // hsdp has no such job without replicas, a window of GradCache is of chunks, and what the last two keep grows with
  // the window.
  EXPECT_EQ(alone, (std::vector<std::string>{"hsdp", "gradcache", "gradcache-every", "gradcache-forward-outside",
                                             "gradcache-unscaled", "jax-scan-stacked", "single-backward"}));
}

TEST(CountedStep, StepsThatDifferInMoreAreNone) {
  Job job = OracleJob("ddp-last", 6);
  const auto six = LoweredWith(job, 6);
  job.micro_batch_size = 3;
  const auto wider = LoweredWith(job, 40);
  job.layout.pp = 2;
  const auto staged = LoweredWith(job, 8), longer = LoweredWith(job, 16);
  ASSERT_TRUE(six && wider && staged && longer);
  EXPECT_FALSE(CountedStep::Of(six->program, six->costs, wider->program, wider->costs));
  EXPECT_FALSE(CountedStep::Of(six->program, six->costs, six->program, six->costs));
  EXPECT_FALSE(CountedStep::Of(staged->program, staged->costs, longer->program, longer->costs));
}

}  // namespace
}  // namespace tidemark
