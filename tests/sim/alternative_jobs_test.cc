// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/alternative_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "models/job/job_template.h"
#include "sim/strategies/strategy.h"
#include "sim/sweep/axis.h"

namespace tidemark::alternative_jobs_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t kGlobalBatch = 48;  // as the job: 3 x 4 x 4

class AlternativeJobsTest : public testing::Test {
 protected:
  AlternativeJobsTest()
      : strategies_(KnownStrategies()),
        template_(*JobTemplate::Parse("network: llama-3-8b\nmachine: h100-sxm-80gb\nsequence_length: 4096\n"
                                      "micro_batch_size: 3\naccumulation_steps: 4\n"
                                      "layout: {dp: 4, tp: 2, pp: 2}\nstrategy: megatron\n",
                                      "job.yaml", {}, strategies_)),
        base_(*template_.Unchecked({})) {}

  /// `axes` as --vary takes them; a layout is a section, which it does not.
  AlternativeJobs JobsOf(std::vector<SweepAxis> axes) {
    space_.emplace(*SweepSpace::Of(std::move(axes)));
    return {template_, base_, *space_, kGlobalBatch};
  }

  std::vector<StrategyDefaults> strategies_;
  JobTemplate template_;
  Job base_;
  std::optional<SweepSpace> space_;
};

TEST_F(AlternativeJobsTest, AJobHasTheValuesOfItsPlaceAndTheMicrobatchesOfTheGlobalBatch) {
  AlternativeJobs jobs =
      JobsOf({{"micro_batch_size", {"1", "2"}}, {"layout", {"{dp: 4, tp: 4, pp: 1}", "{dp: 8, tp: 1, pp: 2}"}}});
  const Result<Job> last = jobs.At(3);
  ASSERT_TRUE(last) << last.error().Text();
  EXPECT_EQ(last->micro_batch_size, 2);
  EXPECT_EQ(last->layout.dp, 8);
  EXPECT_EQ(last->layout.tp, 1);
  EXPECT_EQ(last->accumulation_steps, 3);  // 48 / (2 x 8)
  EXPECT_EQ(jobs.At(0)->accumulation_steps, 12);
}

TEST_F(AlternativeJobsTest, TheJobItselfNeedsNoChange) {
  AlternativeJobs jobs = JobsOf({{"strategy", {"megatron", "ddp-last"}}, {"micro_batch_size", {"3"}}});
  const Result<std::vector<std::string>> change = jobs.ChangeTo(*jobs.At(0));
  ASSERT_TRUE(change) << change.error().Text();
  EXPECT_THAT(*change, IsEmpty());
}

TEST_F(AlternativeJobsTest, AChangeNamesWhatDiffersAndWhatFollows) {
  AlternativeJobs jobs = JobsOf({{"micro_batch_size", {"6"}}, {"layout", {"{dp: 2, tp: 8, pp: 1}"}}});
  EXPECT_THAT(*jobs.ChangeTo(*jobs.At(0)),
              ElementsAre("micro_batch_size=6", "layout.dp=2", "layout.tp=8", "layout.pp=1"));
  AlternativeJobs halved = JobsOf({{"micro_batch_size", {"6"}}});
  EXPECT_THAT(*halved.ChangeTo(*halved.At(0)), ElementsAre("micro_batch_size=6", "accumulation_steps=2"));
}

TEST_F(AlternativeJobsTest, AChangeOfTheStrategyDoesNotRepeatThatStrategysOwnDefaults) {
  // ddp-last sums gradients in bf16, megatron in fp32: that follows from the strategy.
  AlternativeJobs jobs = JobsOf({{"strategy", {"ddp-last"}}, {"precision.accumulate", {"bf16", "fp32"}}});
  EXPECT_THAT(*jobs.ChangeTo(*jobs.At(0)), ElementsAre("strategy=ddp-last"));
  EXPECT_THAT(*jobs.ChangeTo(*jobs.At(1)), ElementsAre("strategy=ddp-last", "precision.accumulate=fp32"));
}

TEST_F(AlternativeJobsTest, DifferencesNameTheLayoutOnceAndLeaveOutWhatFollows) {
  AlternativeJobs jobs =
      JobsOf({{"micro_batch_size", {"1", "2"}}, {"layout", {"{dp: 4, tp: 4, pp: 1}", "{dp: 8, tp: 2, pp: 1}"}}});
  EXPECT_THAT(jobs.Differences(*jobs.At(0), *jobs.At(3)), ElementsAre("micro_batch_size", "layout"));
  EXPECT_THAT(jobs.Differences(*jobs.At(0), *jobs.At(2)), ElementsAre("micro_batch_size"));
  EXPECT_THAT(jobs.Differences(*jobs.At(1), *jobs.At(1)), IsEmpty());
  AlternativeJobs chunks = JobsOf({{"layout", {"{dp: 4, tp: 1, pp: 4, vpp: 2}", "{dp: 8, tp: 1, pp: 2}"}},
                                   {"schedule", {"interleaved", "1f1b"}},
                                   {"layout.sp", {"true", "false"}}});
  EXPECT_THAT(chunks.Differences(*chunks.At(0), *chunks.At(7)), ElementsAre("layout", "schedule"));
}

TEST_F(AlternativeJobsTest, WhatSumsInAnotherDtypeOrIsKnownAsWrongComputesOtherNumbers) {
  AlternativeJobs jobs = JobsOf({{"strategy", {"megatron", "megatron-dist-opt", "ddp-last"}}});
  EXPECT_TRUE(jobs.ComputesTheSame(*jobs.At(0)));
  EXPECT_TRUE(jobs.ComputesTheSame(*jobs.At(1)));
  EXPECT_FALSE(jobs.ComputesTheSame(*jobs.At(2)));  // bf16 instead of fp32
}

TEST(IsGivenToAlternatives, SectionsOfTheTrainingRunAndTheCountThatFollows) {
  for (const char* key : {"layout", "layout.dp", "layout.cp", "machine.device_memory", "network", "network.layers",
                          "sequence_length", "accumulation_steps", "last_window.microbatches"}) {
    EXPECT_TRUE(IsGivenToAlternatives(key)) << key;
  }
  for (const char* key : {"strategy", "micro_batch_size", "schedule", "recompute.policy", "layouts", "layout.vpp",
                          "layout.ep", "layout.sp", "layout.layers_per_stage"}) {
    EXPECT_FALSE(IsGivenToAlternatives(key)) << key;
  }
}

}  // namespace
}  // namespace tidemark::alternative_jobs_test
