// SPDX-License-Identifier: Apache-2.0
#include "sim/engine/counted_step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/cost/price_list.h"
#include "sim/engine/closed_form.h"
#include "sim/engine/time_program.h"
#include "sim/lower/lower.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::counted_step_test {
namespace {

StepProgram LoweredWith(Job job, std::int64_t microbatches) {
  job.accumulation_steps = microbatches;
  Result<StepProgram> program = Lower(job, StepKind::steady);
  EXPECT_TRUE(program) << (program ? "" : program.error().Text());
  return program ? std::move(*program) : StepProgram{};
}

std::optional<CountedStep> Between(const Job& job, std::int64_t low, std::int64_t high) {
  return CountedStep::Of(LoweredWith(job, low), LoweredWith(job, high));
}

/// A slow host, and a slow network: each decides other choices.
std::vector<Machine> Machines() {
  std::vector<Machine> machines(3, TestMachine());
  machines[1].host_issue = Nanos(200'000);
  machines[2].inter_node.bandwidth = machines[2].intra_node.bandwidth = BytesPerSec(1e9);
  return machines;
}

/// Every `stride`-th number of microbatches, by itself and as one of many.
void ExpectCounted(Job job, std::int64_t low, std::int64_t high, std::int64_t stride) {
  const auto counted = Between(job, low, high);
  ASSERT_TRUE(counted);
  ASSERT_EQ(counted->span(), (high - low) / stride);
  std::vector<std::int64_t> more;
  for (std::int64_t i = 0; i <= counted->span(); ++i) {
    more.push_back(i);
  }
  const StepProgram program = LoweredWith(job, high);
  const PriceList prices(program);
  TimedStep step = counted->Reduce(program, false);
  TakePricesOf(prices, step);
  for (const Machine& machine : Machines()) {
    SetPrices(prices.Price(program, machine), machine, step);
    const auto times = CountedStep::Times(step, more);
    ASSERT_TRUE(times);
    for (std::size_t i = 0; i < more.size(); ++i) {
      const std::int64_t microbatches = low + more[i] * stride;
      const StepProgram one = LoweredWith(job, microbatches);
      const Evaluation expected = EvaluateClosedForm(one, PriceAll(one, machine));
      EXPECT_TRUE((*times)[i] == expected.time) << microbatches << " microbatches";
      for (std::size_t role = 0; role < counted->roles(); ++role) {
        EXPECT_TRUE(counted->Peak(role, more[i]) == expected.roles[role]) << microbatches << " microbatches";
      }
    }
  }
}

// Without its loop, a step of two microbatches is the first and the last of a longer one; where the loop runs once, its
// body stands alone.
TEST(CountedStep, BeginsWithNoneOrOneOfTheLoopsBodies) {
  for (const char* strategy : {"ddp-last", "ddp-every", "fsdp2-scatter-each", "megatron", "deepspeed-zero2"}) {
    ExpectCounted(OracleJob(strategy, 4), 2, 40, 1);
    ExpectCounted(OracleJob(strategy, 4), 3, 40, 1);
  }
}

TEST(CountedStep, TheOnlyMicrobatchIsNoFirstOne) {
  const Job job = OracleJob("ddp-last", 4);
  EXPECT_FALSE(Between(job, 1, 40));
  EXPECT_FALSE(Between(job, 1, 2));
}

std::vector<std::string> StrategyNames(bool counted) {
  // hsdp has no such job without replicas, a window of GradCache is of chunks, and what the last two keep grows with
  // the window.
  const std::vector<std::string> alone = {"hsdp",
                                          "gradcache",
                                          "gradcache-every",
                                          "gradcache-forward-outside",
                                          "gradcache-unscaled",
                                          "jax-scan-stacked",
                                          "single-backward"};
  std::vector<std::string> names;
  for (const Strategy& strategy : AllStrategies()) {
    const std::string& name = strategy.defaults.name;
    if ((std::find(alone.begin(), alone.end(), name) == alone.end()) == counted) {
      names.push_back(name);
    }
  }
  return names;
}

class CountedSteps : public ::testing::TestWithParam<std::string> {};

TEST_P(CountedSteps, EqualTheClosedFormOfEach) { ExpectCounted(OracleJob(GetParam(), 4), 4, 40, 1); }

std::string TestName(const ::testing::TestParamInfo<std::string>& strategy) {
  std::string name = strategy.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(All, CountedSteps, ::testing::ValuesIn(StrategyNames(true)), TestName);

TEST(CountedStep, WhatGrowsWithTheWindowIsNotCounted) {
  for (const std::string& name : StrategyNames(false)) {
    Job job = OracleJob(name, 6);
    if (name == "hsdp") {
      job.axes.shard.replicas = 2;
      ExpectCounted(job, 4, 40, 1);
    } else {
      EXPECT_FALSE(Between(job, 6, 40)) << name;
    }
  }
}

struct Pipeline {
  Schedule schedule;
  std::int64_t pp, vpp, low, stride;
};

class CountedPipelines : public ::testing::TestWithParam<Pipeline> {};

TEST_P(CountedPipelines, EqualTheClosedFormOfEach) {
  const Pipeline& pipeline = GetParam();
  for (const char* strategy : {"ddp-last", "megatron", "nanotron"}) {
    Job job = OracleJob(strategy, pipeline.low);
    job.layout.pp = pipeline.pp;
    job.layout.vpp = pipeline.vpp;
    job.schedule = pipeline.schedule;
    ExpectCounted(job, pipeline.low, pipeline.low + 12 * pipeline.stride, pipeline.stride);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, CountedPipelines,
    ::testing::Values(Pipeline{Schedule::one_f_one_b, 2, 1, 5, 1}, Pipeline{Schedule::one_f_one_b, 4, 1, 7, 1},
                      Pipeline{Schedule::interleaved, 2, 2, 10, 2}, Pipeline{Schedule::zb_h1, 4, 1, 7, 1},
                      Pipeline{Schedule::zb_h2, 4, 1, 10, 1}, Pipeline{Schedule::dualpipe, 4, 1, 14, 2}));

TEST(CountedStep, AllForwardPassesFirstAreTwoLoops) {
  Job job = OracleJob("ddp-last", 8);
  job.layout.pp = 2;
  job.schedule = Schedule::gpipe;
  EXPECT_FALSE(Between(job, 8, 16));
}

TEST(CountedStep, StepsThatDifferInMoreAreNone) {
  Job job = OracleJob("ddp-last", 6);
  const StepProgram six = LoweredWith(job, 6);
  job.micro_batch_size = 3;
  EXPECT_FALSE(CountedStep::Of(six, LoweredWith(job, 40)));
  EXPECT_FALSE(CountedStep::Of(six, six));
  job.layout.pp = 2;
  EXPECT_FALSE(CountedStep::Of(six, LoweredWith(job, 40)));
}

}  // namespace
}  // namespace tidemark::counted_step_test
