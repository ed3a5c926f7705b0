// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "models/job/job_template.h"
#include "models/job/throughput.h"
#include "sim/predict/predict.h"
#include "sim/strategies/strategy.h"
#include "sim/sweep/sweep.h"

namespace tidemark::sweep_rows_test {
namespace {

constexpr const char* kJob =
    "network: {layers: 8, hidden: 512, ffn: 1536, heads: 8, kv_heads: 4, vocabulary: 4096}\n"
    "machine: h100-sxm-80gb\n"
    "sequence_length: 512\n"
    "accumulation_steps: 4\n"
    "strategy: ddp-last\n"
    "layout: {dp: 4}\n";

PricedCombinations PriceAllOf(const Sweep& sweep) {
  PricedCombinations all;
  std::int64_t next = 0;
  Sweep::Handlers handlers;
  handlers.next = [&] { return next < sweep.chunks() ? std::optional(next++) : std::nullopt; };
  handlers.done = [&](std::int64_t, PricedCombinations priced) -> Status {
    all.rows.insert(all.rows.end(), priced.rows.begin(), priced.rows.end());
    for (const PricedCombinations::Refused& refused : priced.refused) {
      all.Refuse(refused.combination, priced.reasons[refused.reason]);
    }
    all.pruned += priced.pruned;
    return Done{};
  };
  handlers.cancelled = [] { return false; };
  const Status status = sweep.Run(2, handlers);
  EXPECT_TRUE(status) << (status ? "" : status.error().Text());
  return all;
}

struct Space {
  std::string name;
  std::vector<std::string> vary;
};

class SweepRows : public ::testing::TestWithParam<Space> {
 protected:
  SweepRows() : strategies_(KnownStrategies()), template_(*JobTemplate::Parse(kJob, "job.yaml", {}, strategies_)) {
    std::vector<SweepAxis> axes;
    for (const std::string& vary : GetParam().vary) {
      axes.push_back(*ParseSweepAxis(vary));
    }
    space_ = *SweepSpace::Of(axes);
  }

  /// The combination as the job that `--set` makes.
  Result<Job> JobOf(std::int64_t combination) {
    std::vector<std::size_t> at(space_->axes().size());
    space_->At(combination, at);
    JobChanges changes;
    for (std::size_t i = 0; i < at.size(); ++i) {
      changes.set.push_back(space_->axes()[i].key + "=" + space_->axes()[i].values[at[i]]);
    }
    return ParseJob(kJob, "job.yaml", changes, strategies_);
  }

  std::vector<StrategyDefaults> strategies_;
  JobTemplate template_;
  std::optional<SweepSpace> space_;
};

// The simulation knows nothing of families, counts or chunks.
TEST_P(SweepRows, EqualTheSimulationOfEach) {
  const Sweep sweep(*SweepGroups::Of(*space_), SweepLimits{}, template_);
  const PricedCombinations all = PriceAllOf(sweep);
  EXPECT_EQ(std::ssize(all.rows) + std::ssize(all.refused), sweep.size());
  EXPECT_EQ(all.pruned, 0);
  std::vector<bool> seen(static_cast<std::size_t>(sweep.size()));
  std::mt19937_64 dice(20261123);
  for (const PricedRow& row : all.rows) {
    ASSERT_FALSE(seen[static_cast<std::size_t>(row.combination)]);
    seen[static_cast<std::size_t>(row.combination)] = true;
    if (dice() % 40 != 0) {
      continue;
    }
    const Result<Job> job = JobOf(row.combination);
    ASSERT_TRUE(job) << job.error().Text();
    PredictOptions options;
    options.traces = false;
    const Result<Prediction> expected = Predict(*job, options);
    ASSERT_TRUE(expected) << expected.error().Text();
    const MemoryPeak& peak = expected->roles[expected->worst_role].peak;
    EXPECT_TRUE(row.time == expected->time) << row.combination;
    EXPECT_TRUE(row.allocated == peak.allocated && row.by_category == peak.by_category && row.phase == peak.phase &&
                row.host == peak.host)
        << row.combination;
    const Throughput throughput = MakeThroughput({TokensPerRank(*job), expected->model_flops, 0}, expected->time.step,
                                                 job->machine.peak.at(job->axes.precision.params));
    EXPECT_DOUBLE_EQ(row.tokens_per_s_per_gpu, throughput.tokens_per_s_per_gpu);
    EXPECT_NEAR(row.mfu, throughput.mfu, 1e-12);
  }
  for (const PricedCombinations::Refused& refused : all.refused) {
    ASSERT_FALSE(seen[static_cast<std::size_t>(refused.combination)]);
    seen[static_cast<std::size_t>(refused.combination)] = true;
    if (dice() % 40 == 0) {
      const Result<Job> job = JobOf(refused.combination);
      ASSERT_FALSE(job) << refused.combination;
      const std::string& hint = job.error().hint;
      EXPECT_TRUE(all.reasons[refused.reason].ends_with(job.error().message + (hint.empty() ? "" : " (" + hint + ")")))
          << all.reasons[refused.reason];
    }
  }
}

std::string EveryStrategy() {
  std::string names;
  for (const StrategyDefaults& strategy : KnownStrategies()) {
    names += (names.empty() ? "strategy=" : ",") + strategy.name;
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(
    All, SweepRows,
    ::testing::Values(Space{"Strategies",
                            {EveryStrategy(), "accumulation_steps=1..24", "layout.tp=1,2",
                             "machine=v100-sxm-32gb,h100-sxm-80gb,a100-pcie-40gb"}},
                      Space{"Pipelines",
                            {"strategy=ddp-last,megatron,nanotron", "layout.pp=1,2,4",
                             "schedule=gpipe,1f1b,interleaved,zb-h1,zb-h2,dualpipe", "layout.vpp=1,2",
                             "accumulation_steps=1..20", "machine.host_issue=1us,40us"}},
                      Space{"Windows",
                            {"strategy=ddp-last,deepspeed-zero1,nanotron,gradcache", "accumulation_steps=1..24",
                             "layout.pp=1,2", "pipeline_microbatches=null,4", "last_window.microbatches=0,3"}},
                      Space{"Sizes",
                            {"strategy=fsdp2-scatter-each,deepspeed-zero3,colossalai-gemini", "micro_batch_size=1..8",
                             "recompute.policy=none,selective,full,every_n", "layout.dp=2,3,8",
                             "accumulation_steps=12,4,100"}}),
    [](const auto& space) { return space.param.name; });

}  // namespace
}  // namespace tidemark::sweep_rows_test
