// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "profiler/execute/numerics.h"
#include "tests/profiler/execute/memory_events.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::zero3_test {
namespace {

// ZeRO-3 keeps a part of each parameter on each rank, gathers whole ones alone or several at once, and interleaves the
// parts of what it reduces.

struct Sizes {
  const char* name;
  std::int64_t ranks, bucket, prefetch, persistence;
};

void PrintTo(const Sizes& sizes, std::ostream* out) { *out << sizes.name; }

// The parameters are 64 x 64, 32 x 64, 96 x 64, norms of 64 and an embedding of 128 x 64: of 3 ranks the last has less.
const std::vector<Sizes> kSizes = {
    {"one_rank", 1, 50'000, 0, 0},
    {"gathered_one_by_one", 2, 50'000, 0, 0},
    {"gathered_ahead", 3, 50'000, 10'000, 0},
    {"norms_stay", 3, 50'000, 10'000, 64},
    {"all_stay", 2, 50'000, 0, 100'000},
    {"larger_than_the_bucket", 3, 5000, 10'000, 64},  // the embedding, the head and the feed-forward's
    {"one_fills_the_bucket", 2, 6144, 0, 64},         // reduced where it lies in the bucket
};

class Zero3 : public testing::TestWithParam<Sizes> {
 protected:
  static Job JobOf(std::int64_t microbatches) {
    Job job = SmallJob("deepspeed-zero3");
    job.layout.dp = GetParam().ranks;
    job.accumulation_steps = microbatches;
    job.axes.sync.bucket_elements = GetParam().bucket;
    job.axes.shard.prefetch_elements = GetParam().prefetch;
    job.axes.shard.persistence_threshold = GetParam().persistence;
    return job;
  }
};

TEST_P(Zero3, HasEachGradientOfOneBigBatchOnOneRank) {
  const RunOptions options{.seed = 7, .exact = true, .keep_gradients = true};
  for (const std::int64_t microbatches : {1, 3}) {
    const Job job = JobOf(microbatches);
    const ParameterParts& reference = Reference(OneBatch(job), 1, options).gradients;
    const std::vector<RunOutcome> runs = ExecutedTogether(job, 1, options);
    const Model model = *Model::Of(job, {0, 1});
    std::map<ParameterKey, std::size_t> found;
    for (const RunOutcome& run : runs) {
      EXPECT_LT(DistanceOf(model, run.gradients, reference, kExactFloor).highest, BoundOf(DType::fp64, 0));
      for (const auto& [key, parts] : run.gradients) {
        for (const auto& [begin, values] : parts) {
          found[key] += values.size();
        }
      }
    }
    for (const auto& [key, parts] : reference) {
      EXPECT_EQ(found[key], parts.at(0).size()) << key.first << " " << key.second;
    }
  }
}

// A control: another microbatch is not the same.
TEST_P(Zero3, ExceedsTheBoundWithoutOneOfItsMicrobatches) {
  const RunOptions options{.seed = 7, .exact = true, .keep_gradients = true};
  const Job job = JobOf(2);
  const ParameterParts& reference = Reference(OneBatch(job), 1, options).gradients;
  for (const RunOutcome& run : ExecutedTogether(JobOf(1), 1, options)) {
    EXPECT_GT(DistanceOf(*Model::Of(job, {0, 1}), run.gradients, reference, kExactFloor).highest,
              BoundOf(DType::bf16, 1000));
  }
}

// What a gathered buffer would have to hold is the model's to say, not the program's.
TEST_P(Zero3, IsRefusedWhereAGatheredParameterIsToBeTwiceAsLarge) {
  const Job job = JobOf(2);
  LoweredSteps lowered(job, 1);
  const auto refused = [&] { return !CheckExecutable(job, lowered.steps(), {}).ok(); };
  EXPECT_FALSE(refused());
  std::int64_t changed = 0;
  for (Node& node : lowered.first().nodes) {
    auto* leaf = std::get_if<Collective>(&node);
    Buffer* to = leaf == nullptr ? nullptr : &lowered.first().buffers[leaf->writes.front().buffer.index];
    if (to != nullptr && to->name == "gathered layer.wq") {
      to->elements *= ++changed == 1 ? 2 : 1;
      leaf->payload_elements *= 2;
    }
  }
  EXPECT_EQ(changed > 0, GetParam().ranks > 1);  // one rank has all of it already
  EXPECT_EQ(refused(), GetParam().ranks > 1);
}

// Weights that were gathered, used, updated in parts and gathered again.
TEST_P(Zero3, LearnsAsOneRankDoes) {
  const RunOptions exact{.seed = 7, .exact = true};
  Job job = JobOf(2);
  job.axes.optimizer_step.clip_norm = 0.01;  // less than the norm of all gradients
  Job one = OneBatch(job);
  one.axes.optimizer_step.clip_norm = 0.01;
  const RunOutcome& plain = Reference(one, 4, exact);
  const std::vector<RunOutcome> runs = ExecutedTogether(job, 4, exact);
  for (std::size_t step = 0; step < 4; ++step) {
    EXPECT_NEAR(*runs.front().steps[step].loss, *plain.steps[step].loss, 1e-10) << step;
  }
}

TEST_P(Zero3, AllocatesWhatWasPredictedEventByEvent) {
  const Job job = JobOf(2);
  PredictOptions options;
  options.steps = FirstSteps(3);
  const Prediction prediction = *Predict(job, options);
  const Trace& predicted = *prediction.roles.front().trace;
  for (const RunOutcome& run : ExecutedTogether(job, 3)) {
    EXPECT_EQ(MemoryEventsOf(run.trace), MemoryEventsOf(predicted));
  }
}

INSTANTIATE_TEST_SUITE_P(Execute, Zero3, testing::ValuesIn(kSizes), [](const auto& sizes) { return sizes.param.name; });

}  // namespace
}  // namespace tidemark::zero3_test
