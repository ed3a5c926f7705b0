// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "models/job/read.h"
#include "profiler/execute/run.h"
#include "sim/predict/predict.h"
#include "sim/predict/steps.h"
#include "tests/sim/oracle_job.h"

namespace tidemark {

/// A network that a test executes in milliseconds, on one rank: two microbatches of two samples.
inline Job SmallJob(const std::string& strategy) {
  Job job = OracleJob(strategy, 2);
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = 2;
  decoder.hidden = 64;
  decoder.ffn = 96;
  decoder.heads = 4;
  decoder.kv_heads = 2;
  decoder.head_size = 16;
  decoder.vocabulary = 128;
  job.sequence_length = 16;
  job.micro_batch_size = 2;
  job.layout.dp = 1;
  Job small_bucket = job;  // DeepSpeed's has 5e8 elements, whatever the model
  small_bucket.axes.sync.bucket_elements = 50'000;
  const bool huge = job.axes.sync.bucket_elements == 500'000'000;
  return huge && FindStrategy(strategy)->Accept(small_bucket) ? small_bucket : job;
}

/// All samples of a step of `job` as one batch on one rank, without accumulation.
inline Job OneBatch(const Job& job) {
  Job one = SmallJob("ddp-every");
  one.network = job.network;
  one.axes.packing = job.axes.packing;
  one.micro_batch_size = job.micro_batch_size * job.accumulation_steps * job.layout.dp;
  one.accumulation_steps = 1;
  return one;
}

/// What gradients are compared in.
inline RunOptions Exact() { return {.seed = 7, .exact = true, .keep_gradients = true}; }

/// Of a test of one strategy: GoogleTest takes no hyphens.
inline std::string StrategyName(const testing::TestParamInfo<std::string>& strategy) {
  std::string name = strategy.param;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

/// The first `steps` steps of a job, lowered.
class LoweredSteps {
 public:
  LoweredSteps(const Job& job, std::int64_t steps, std::int64_t shard = 0) {
    auto lowered = LowerRuns(job, FirstSteps(steps), shard);
    EXPECT_TRUE(lowered.ok()) << lowered.error().Text();
    runs_ = std::move(*lowered);
    for (const LoweredRun& run : runs_) {
      steps_.insert(steps_.end(), static_cast<std::size_t>(run.run.count),
                    {&run.program, std::string(Name(run.run.kind))});
    }
  }

  const std::vector<RunStep>& steps() const { return steps_; }
  Program& first() { return runs_.front().program.roles.front(); }

 private:
  std::vector<LoweredRun> runs_;
  std::vector<RunStep> steps_;
};

inline Result<RunOutcome> RunAlone(const Job& job, const std::vector<RunStep>& steps, const RunOptions& options = {}) {
  const auto world = MakeSingleWorld();
  return RunSteps(job, steps, options, *world);
}

inline RunOutcome Executed(const Job& job, std::int64_t steps, const RunOptions& options = {}) {
  const LoweredSteps lowered(job, steps);
  auto run = RunAlone(job, lowered.steps(), options);
  EXPECT_TRUE(run.ok()) << run.error().Text();
  return std::move(*run);
}

/// The same for what many jobs are held to, such as OneBatch of each: executed once in a process. Of the options only
/// those that its numbers depend on are looked at.
inline const RunOutcome& Reference(const Job& job, std::int64_t steps, const RunOptions& options) {
  static std::map<std::string, RunOutcome> known;
  std::string key = fmt::format("{} {} {} {} {}\n{}", steps, options.seed, options.exact, options.keep_gradients,
                                options.kept_update, JobYaml(job));
  const auto found = known.find(key);
  return found != known.end() ? found->second
                              : known.emplace(std::move(key), Executed(job, steps, options)).first->second;
}

}  // namespace tidemark
