// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark {
namespace {

// What systems that are wrong on purpose make of a gradient, number by number: in fp64, so that what is left is exactly
// the factor or the sum that they are wrong by.

RunOptions Exact() { return {.seed = 7, .exact = true, .keep_gradients = true}; }

/// The largest difference between `found` and a combination of other gradients, over the largest number expected.
template <class Expected>
double FarthestFrom(const ParameterParts& found, Expected expected) {
  double difference = 0, largest = 0;
  for (const auto& [key, parts] : found) {
    for (const auto& [begin, values] : parts) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double number = expected(key, begin, i);
        difference = std::max(difference, std::abs(values[i] - number));
        largest = std::max(largest, std::abs(number));
      }
    }
  }
  EXPECT_GT(largest, 0);
  return difference / largest;
}

Job PairJob(const std::string& strategy, std::int64_t ranks) {
  Job job = OracleJob(strategy, 2);
  Decoder encoder = std::get<Decoder>(SmallJob("ddp-last").network.shape);
  encoder.layers = 1;
  Decoder wider = encoder;
  wider.layers = 2;
  wider.hidden = 32;
  wider.head_size = 8;
  job.network.shape = DualEncoder{encoder, wider, false, 24, 2};
  job.sequence_length = 8;
  job.micro_batch_size = 2;
  job.layout.dp = ranks;
  return job;
}

/// All pairs as one batch on one rank, whose loss is over the same pairs.
Job OneBatch(const Job& job) {
  Job one = job;
  const Job plain = SmallJob("ddp-every");
  one.strategy = plain.strategy;
  one.axes = plain.axes;
  one.layout = {};
  one.accumulation_steps = 1;
  one.micro_batch_size = job.micro_batch_size * job.accumulation_steps * job.layout.dp;
  return one;
}

class EveryGradCache : public testing::TestWithParam<std::string> {};

TEST_P(EveryGradCache, HasTheGradientsOfOneLossOverThePairsOfAllRanks) {
  const Job job = PairJob(GetParam(), 2);
  const ParameterParts one = Executed(OneBatch(job), 1, Exact()).gradients;
  for (const RunOutcome& rank : ExecutedTogether(job, 1, Exact())) {
    EXPECT_EQ(rank.gradients.size(), one.size());
    EXPECT_LT(FarthestFrom(rank.gradients, [&](const ParameterKey& key, std::int64_t begin,
                                               std::size_t i) { return one.at(key).at(begin)[i]; }),
              1e-10);
  }
}

// The second encoder is the wider one, and has other kernels than the first: theirs are the sizes of its blocks.
TEST_P(EveryGradCache, HasThemWithEagerKernelsInOneEncoderToo) {
  const Job fused = PairJob(GetParam(), 2);
  Job eager = fused;
  Decoder& second = std::get<DualEncoder>(eager.network.shape).second;
  second.attention_kernel = Decoder::AttentionKernel::eager;
  second.norm_kernel = Decoder::NormKernel::eager;
  const ParameterParts one = Executed(OneBatch(fused), 1, Exact()).gradients;
  for (const RunOutcome& rank : ExecutedTogether(eager, 1, Exact())) {
    EXPECT_LT(FarthestFrom(rank.gradients, [&](const ParameterKey& key, std::int64_t begin,
                                               std::size_t i) { return one.at(key).at(begin)[i]; }),
              1e-10);
  }
}

INSTANTIATE_TEST_SUITE_P(Execute, EveryGradCache,
                         testing::Values("gradcache", "gradcache-every", "gradcache-forward-outside"),
                         [](const auto& strategy) {
                           std::string name = strategy.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

// Each rank's surrogate carries the gradient of the loss over all pairs with respect to its own rows, and the right
// gradient is the sum over ranks; DDP averages. So 1/N of it, in every number.
TEST(GradCacheUnscaled, IsTooSmallByExactlyTheNumberOfRanks) {
  for (const std::int64_t ranks : {2, 4}) {
    const Job job = PairJob("gradcache-unscaled", ranks);
    const ParameterParts one = Executed(OneBatch(job), 1, Exact()).gradients;
    const auto too_small = [&](const ParameterKey& key, std::int64_t begin, std::size_t i) {
      return one.at(key).at(begin)[i] / static_cast<double>(ranks);
    };
    for (const RunOutcome& rank : ExecutedTogether(job, 1, Exact())) {
      EXPECT_LT(FarthestFrom(rank.gradients, too_small), 1e-10) << ranks;
    }
  }
}

// Skipping the all-reduce of all microbatches but the last without rewrite_for_grad_acc leaves, of M = 2 on N = 2
// ranks,
//   g[rank, 1] + (g[0, 2] + g[1, 2])
// where the right sum is over all four, each of them counted 1/(M N). Replicas drift apart.
//
// Samples of one batch are numbered microbatch by microbatch, and in each rank by rank: 0, 1 of the first and 2, 3 of
// the second. What one of them comes to is the difference of two sums over the first samples.
TEST(AlpaWithoutTheRewrite, LeavesTheEarlierMicrobatchesLocal) {
  Job job = SmallJob("alpa");
  job.micro_batch_size = 1;
  job.layout.dp = 2;
  job.axes.sync.rewrite = false;
  std::vector<ParameterParts> mean(5);  // over the first 1, 2, 3, 4 samples
  for (std::int64_t samples = 1; samples <= 4; ++samples) {
    Job one = SmallJob("ddp-every");
    one.accumulation_steps = 1;
    one.micro_batch_size = samples;
    mean[static_cast<std::size_t>(samples)] = Executed(one, 1, Exact()).gradients;
  }
  const std::vector<RunOutcome> ranks = ExecutedTogether(job, 1, Exact());
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    EXPECT_LT(FarthestFrom(ranks[rank].gradients,
                           [&](const ParameterKey& key, std::int64_t begin, std::size_t i) {
                             const auto sum = [&](std::size_t samples) {
                               return samples == 0 ? 0.0
                                                   : static_cast<double>(samples) * mean[samples].at(key).at(begin)[i];
                             };
                             const double first = sum(rank + 1) - sum(rank), last = sum(4) - sum(2);
                             return (first + last) / 4;
                           }),
              1e-10);
  }
  EXPECT_NE(ranks[0].gradients, ranks[1].gradients);
}

// One part of each array is a rank's; together they are all of it.
TEST(AlpaZero2, HasTheRightPartOfEachGradient) {
  Job job = SmallJob("alpa-zero2");
  job.layout.dp = 4;
  Job one = SmallJob("ddp-every");
  one.network = job.network;
  one.axes.packing = job.axes.packing;
  one.accumulation_steps = 1;
  one.micro_batch_size = job.micro_batch_size * job.accumulation_steps * 4;
  const ParameterParts whole = Executed(one, 1, Exact()).gradients;
  std::size_t numbers = 0, had = 0;
  for (const auto& [key, parts] : whole) {
    numbers += parts.at(0).size();
  }
  for (const RunOutcome& rank : ExecutedTogether(job, 2, Exact())) {
    for (const auto& [key, parts] : rank.gradients) {
      had += parts.begin()->second.size();
    }
    EXPECT_LT(FarthestFrom(rank.gradients,
                           [&](const ParameterKey& key, std::int64_t begin, std::size_t i) {
                             return whole.at(key).at(0)[static_cast<std::size_t>(begin) + i];
                           }),
              1e-10);
  }
  EXPECT_EQ(had, numbers);
}

}  // namespace
}  // namespace tidemark
