// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/single_changes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "models/job/fields.h"
#include "models/job/read.h"
#include "sim/strategies/strategy.h"

namespace tidemark::single_changes_test {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::Not;

Job JobOf(const std::vector<std::string>& set) {
  constexpr const char* kYaml =
      "network: llama-3-8b\nmachine: h100-sxm-80gb\nsequence_length: 4096\nmicro_batch_size: 2\n"
      "accumulation_steps: 4\nlayout: {dp: 8}\nstrategy: fsdp2-scatter-each\n";
  const Result<Job> job = ParseJob(kYaml, "job.yaml", {set, {}}, KnownStrategies());
  EXPECT_TRUE(job.ok()) << (job.ok() ? "" : job.error().message);
  return *job;
}

TEST(SingleChanges, areOneKeyEachUnlessTheTrainingRunWouldBeAnotherOrTheSame) {
  const std::set<std::string> batch = {"micro_batch_size", "accumulation_steps", "layout.dp", "layout.tp", "layout.pp"};
  const std::set<std::string> parts = {"recompute.policy", "recompute.attention", "recompute.norm",
                                       "recompute.activation", "recompute.feed_forward"};
  for (const SingleChange& change : SingleChanges(JobOf({}))) {
    ASSERT_FALSE(change.empty());
    for (const std::string& set : change) {
      const std::string key = set.substr(0, set.find('='));
      EXPECT_TRUE(JobKeys().count(key) == 1) << set;
      EXPECT_TRUE(change.size() == 1 || batch.count(key) == 1 || parts.count(key) == 1) << set;
    }
  }
}

TEST(SingleChanges, keepRanksAndGlobalBatch) {
  const std::string ddp = "strategy=ddp-last";
  const Job job = JobOf({ddp});
  std::size_t several = 0;
  for (SingleChange change : SingleChanges(job)) {
    if (change.size() > 1) {
      change.push_back(ddp);
      const Job changed = JobOf(change);
      EXPECT_EQ(changed.Ranks(), job.Ranks());
      EXPECT_EQ(changed.micro_batch_size * changed.accumulation_steps * changed.layout.dp, 2 * 4 * 8);
      EXPECT_TRUE(ComputeAlike(job, changed));
      ++several;
    }
  }
  EXPECT_EQ(several, 7U);  // micro batch 1 and 4; dp 4 with tp 2, and with pp 2; three parts of a layer
}

TEST(SingleChanges, takeThePolicyAlongThatLooksAtAPartOfALayer) {
  const SingleChange part = {"recompute.policy=selective", "recompute.attention=false", "recompute.feed_forward=true"};
  for (const char* policy : {"none", "full", "every_n", "per_op"}) {
    EXPECT_THAT(SingleChanges(JobOf({std::string("recompute.policy=") + policy})), Contains(part)) << policy;
  }
  const SingleChange latent = {"recompute.policy=selective", "recompute.attention=false",
                               "recompute.latent_heads=true"};
  EXPECT_THAT(SingleChanges(JobOf({})), Not(Contains(latent)));  // the network has none
  EXPECT_THAT(SingleChanges(JobOf({"network=deepseek-v2-lite"})), Contains(latent));
  const std::vector<SingleChange> selective = SingleChanges(JobOf({"recompute.policy=selective"}));
  EXPECT_THAT(selective, Not(Contains(part)));
  EXPECT_THAT(selective, Contains(ElementsAre("recompute.feed_forward=true")));
}

TEST(SingleChanges, haveEveryOtherValueOfANamedKeyAndEveryOtherStrategy) {
  const std::vector<SingleChange> changes = SingleChanges(JobOf({}));
  for (const char* set :
       {"recompute.policy=full", "recompute.policy=selective", "loss=chunked", "optimizer=sgd", "precision.master=none",
        "layout.sp=true", "schedule=gpipe", "optimizer_step.kernel=foreach"}) {
    EXPECT_THAT(changes, Contains(ElementsAre(set)));
  }
  EXPECT_THAT(changes, Not(Contains(ElementsAre("recompute.policy=none"))));  // what it is
  for (const Strategy& strategy : AllStrategies()) {
    const std::string& name = strategy.defaults.name;
    EXPECT_EQ(std::count(changes.begin(), changes.end(), SingleChange{"strategy=" + name}),
              name == "fsdp2-scatter-each" ? 0 : 1);
  }
}

TEST(SingleChanges, leaveOutWhatTheStrategyDoesNotLookAtAndTakeHalfAndTwiceOfItsNumbers) {
  EXPECT_THAT(SingleChanges(JobOf({})), Not(Contains(ElementsAre("buffers.donate=false"))));
  EXPECT_THAT(SingleChanges(JobOf({})), Not(Contains(ElementsAre("sync.bucket_bytes=13107200"))));
  EXPECT_THAT(SingleChanges(JobOf({})), Contains(ElementsAre("optimizer_step.offload=true")));
  EXPECT_THAT(SingleChanges(JobOf({"strategy=deepspeed-zero2"})), Contains(ElementsAre("optimizer_step.offload=true")));
  const std::vector<SingleChange> ddp = SingleChanges(JobOf({"strategy=ddp-last"}));
  EXPECT_THAT(ddp, Not(Contains(ElementsAre("optimizer_step.offload=true"))));
  EXPECT_THAT(ddp, Contains(ElementsAre("sync.bucket_bytes=13107200")));  // of 25 MiB
  EXPECT_THAT(ddp, Contains(ElementsAre("sync.bucket_bytes=52428800")));
}

TEST(SingleChanges, fitTheBucketThatIsAllocatedWholeToASmallerModel) {
  const SingleChange fitted = {"sync.bucket_elements=124439808"};  // GPT-2's parameters, as Hugging Face counts them
  const std::vector<std::string> gpt2 = {"network=gpt2", "sequence_length=1024", "strategy=deepspeed-zero2"};
  EXPECT_THAT(SingleChanges(JobOf(gpt2)), Contains(fitted));  // of 5e8
  std::vector<std::string> small = gpt2;
  small.emplace_back("sync.bucket_elements=100000000");
  EXPECT_THAT(SingleChanges(JobOf(small)), Not(Contains(fitted)));
  EXPECT_THAT(SingleChanges(JobOf({"network=gpt2", "sequence_length=1024", "strategy=ddp-last"})),
              Not(Contains(fitted)));
}

TEST(SingleChanges, anOddMicroBatchIsNotHalved) {
  for (const SingleChange& change :
       SingleChanges(JobOf({"micro_batch_size=1", "accumulation_steps=3", "layout.dp=1"}))) {
    EXPECT_FALSE(change.front().starts_with("micro_batch_size")) << change.front();
  }
}

TEST(ComputeAlike, tellsDtypesLossOptimizerAndBatchApartAndNothingElse) {
  const Job job = JobOf({});
  for (const char* set :
       {"recompute.policy=full", "loss=chunked", "strategy=fsdp2-defer", "optimizer_step.kernel=foreach"}) {
    EXPECT_TRUE(ComputeAlike(job, JobOf({set}))) << set;
  }
  for (const char* set : {"precision.master=none", "loss=low-precision", "optimizer=sgd", "accumulation_steps=8",
                          "optimizer_step.clip_norm=1", "strategy=ddp-last"}) {
    EXPECT_FALSE(ComputeAlike(job, JobOf({set}))) << set;
  }
}

// A rank's batch is cut into chunks; their number is no part of it.
TEST(ComputeAlike, countsTheBatchThatGradCacheCuts) {
  constexpr const char* kYaml =
      "network: {dual_encoder: {representation: 64, first: {layers: 2, hidden: 64, ffn: 128, heads: 4, vocabulary: "
      "1000, "
      "positions: 64, norm: layer, ffn_kind: two-layer, rope: false}}}\nmachine: h100-sxm-80gb\n"
      "sequence_length: 64\nmicro_batch_size: 8\naccumulation_steps: 4\nlayout: {dp: 2}\nstrategy: gradcache\n";
  const auto job_with = [&](const std::vector<std::string>& set) {
    const Result<Job> job = ParseJob(kYaml, "job.yaml", {set, {}}, KnownStrategies());
    EXPECT_TRUE(job.ok()) << (job.ok() ? "" : job.error().Text());
    return *job;
  };
  const Job job = job_with({});
  EXPECT_TRUE(ComputeAlike(job, job_with({"gradient_flow.chunks=8"})));
  EXPECT_FALSE(ComputeAlike(job, job_with({"micro_batch_size=4", "gradient_flow.chunks=4"})));
}

TEST(IsDeclaredWrong, knowsNanotronsFirstPool) {
  const std::vector<std::string> nanotron = {"strategy=nanotron", "layout.tp=4", "layout.dp=2"};
  EXPECT_FALSE(IsDeclaredWrong(JobOf(nanotron)));
  std::vector<std::string> unsafe = nanotron;
  unsafe.emplace_back("buffers.tp_gather=pooled-unsafe");
  EXPECT_TRUE(IsDeclaredWrong(JobOf(unsafe)));
}

}  // namespace
}  // namespace tidemark::single_changes_test
