// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <tuple>
#include <vector>

#include "profiler/execute/batches.h"
#include "tests/profiler/execute/farthest.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::uneven_lengths_test {
namespace {

// Sequences of different lengths (sequence_length: {max, mean}): padded, and labels behind a sample's end count
// nothing. What a microbatch's loss is divided by decides whether the gradient is that of one big batch.

constexpr std::int64_t kLongest = 16, kMean = 9;
constexpr std::uint64_t kSeed = 7;

RunOptions Exact() { return {.seed = kSeed, .exact = true, .keep_gradients = true}; }

TEST(UnevenBatches, HaveLengthsAroundTheirMeanAndNoLabelsBehindThem) {
  constexpr std::int64_t kSamples = 10'000;
  const Batches even = Batches::Random(100, kLongest, kSeed), uneven = even.Uneven(kMean);
  std::int64_t sum = 0, shortest = kLongest, longest = 0;
  for (std::int64_t sample = 0; sample < kSamples; ++sample) {
    const std::int64_t counted = uneven.CountedOf(sample);
    sum += counted;
    shortest = std::min(shortest, counted);
    longest = std::max(longest, counted);
    std::vector<std::int64_t> ids(kLongest), labels(kLongest), even_ids(kLongest), even_labels(kLongest);
    uneven.Ids(sample, ids);
    uneven.Labels(sample, labels);
    even.Ids(sample, even_ids);
    even.Labels(sample, even_labels);
    ASSERT_EQ(ids, even_ids);
    for (std::int64_t i = 0; i < kLongest; ++i) {
      const auto at = static_cast<std::size_t>(i);
      ASSERT_EQ(labels[at], i < counted ? even_labels[at] : Batches::kIgnored) << sample << " " << i;
    }
  }
  // Even from 2 to 16: a deviation of 4.3, of the mean of 10,000 one of 0.043.
  EXPECT_NEAR(static_cast<double>(sum) / kSamples, kMean, 5 * 0.043);
  EXPECT_EQ(shortest, 2);
  EXPECT_EQ(longest, kLongest);
  EXPECT_EQ(even.CountedOf(3), kLongest);
  EXPECT_EQ(even.Uneven(1).CountedOf(3), 1);
  EXPECT_EQ(even.Uneven(kLongest).CountedOf(3), kLongest);
}

Job Uneven(const std::string& strategy) {
  Job job = SmallJob(strategy);
  job.sequence_length = kLongest;
  job.mean_sequence_length = kMean;
  job.micro_batch_size = 1;
  return job;
}

std::int64_t TokensOf(std::int64_t first, std::int64_t samples) {
  const Batches batches = Batches::Random(2, kLongest, kSeed).Uneven(kMean);
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < samples; ++i) {
    tokens += batches.CountedOf(first + i);
  }
  return tokens;
}

/// The gradient of the mean over the tokens of the first `samples` samples, one batch on one rank.
RunOutcome OneBatchOf(const Job& job, std::int64_t samples) {
  Job one = Uneven("ddp-every");
  one.network = job.network;
  one.axes.packing = job.axes.packing;
  one.accumulation_steps = 1;
  one.micro_batch_size = samples;
  return Executed(one, 1, Exact());
}

auto Of(const ParameterParts& whole) {
  return [&whole](const ParameterKey& key, std::int64_t begin, std::size_t i) {
    return whole.at(key).at(0)[static_cast<std::size_t>(begin) + i];
  };
}

class TokenCounts : public testing::TestWithParam<std::string> {};

TEST_P(TokenCounts, DividedByAllTokensOfTheWindowGiveTheGradientOfOneBatch) {
  Job job = Uneven(GetParam());
  job.layout.dp = 2;
  job.axes.loss_scale = LossScale::global_tokens;
  ASSERT_NE(TokensOf(0, 1), TokensOf(1, 1));
  const RunOutcome one = OneBatchOf(job, 4);
  for (const RunOutcome& rank : ExecutedTogether(job, 1, Exact())) {
    EXPECT_LT(FarthestFrom(rank.gradients, Of(one.gradients)), 1e-10);
    EXPECT_NEAR(*rank.steps.front().loss, *one.steps.front().loss, 1e-12);
  }
  if (GetParam() != "jax-multisteps") {  // which has no other scale
    job.axes.loss_scale = LossScale::microbatches;
    ASSERT_TRUE(FindStrategy(GetParam())->Accept(job).ok());
    for (const RunOutcome& rank : ExecutedTogether(job, 1, Exact())) {
      EXPECT_GT(FarthestFrom(rank.gradients, Of(one.gradients)), 1e-3);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Execute, TokenCounts,
                         testing::Values("fsdp2-scatter-each", "fsdp2-defer", "fsdp2-keep-all",
                                         "fsdp2-keep-after-backward", "jax-multisteps"),
                         StrategyName);

// With g(n) the gradient of the mean over the t(n) tokens of the first n samples, the second sample alone has
// (t(2) g(2) - t(1) g(1)) / (t(2) - t(1)), and the mean of both means is (g(1) + that) / 2, whatever t is.
TEST(MeansOfMicrobatches, CountEachMicrobatchTheSameWhateverItsTokens) {
  const Job job = Uneven("ddp-last");
  const ParameterParts first = OneBatchOf(job, 1).gradients, both = OneBatchOf(job, 2).gradients;
  const auto t1 = static_cast<double>(TokensOf(0, 1)), t2 = static_cast<double>(TokensOf(0, 2));
  const auto mean_of_means = [&](const ParameterKey& key, std::int64_t begin, std::size_t i) {
    const double g1 = Of(first)(key, begin, i), g2 = Of(both)(key, begin, i);
    return (g1 + (t2 * g2 - t1 * g1) / (t2 - t1)) / 2;
  };
  const ParameterParts found = Executed(job, 1, Exact()).gradients;
  EXPECT_LT(FarthestFrom(found, mean_of_means), 1e-10);
  EXPECT_GT(FarthestFrom(found, Of(both)), 1e-3);
}

// Alpa's loss is one mean over the microbatch's tokens on all ranks: samples 0 and 1 of the first, 2 and 3 of the
// second. The mean of these two means, as above.
TEST(MeansOfMicrobatches, AreOverTheTokensOfAllRanksWhereTheBatchIsGlobal) {
  Job job = Uneven("alpa");
  job.layout.dp = 2;
  const ParameterParts first = OneBatchOf(job, 2).gradients, both = OneBatchOf(job, 4).gradients;
  const auto t1 = static_cast<double>(TokensOf(0, 2)), t2 = static_cast<double>(TokensOf(0, 4));
  for (const RunOutcome& rank : ExecutedTogether(job, 1, Exact())) {
    EXPECT_LT(FarthestFrom(rank.gradients,
                           [&](const ParameterKey& key, std::int64_t begin, std::size_t i) {
                             const double g1 = Of(first)(key, begin, i), g2 = Of(both)(key, begin, i);
                             return (g1 + (t2 * g2 - t1 * g1) / (t2 - t1)) / 2;
                           }),
              1e-10);
  }
}

/// Each form of the loss, with its vocabulary on one rank and on two.
class UnevenLosses : public testing::TestWithParam<std::tuple<Partition::Loss, std::int64_t>> {};

TEST_P(UnevenLosses, IgnoreWhatHasNoLabel) {
  Job job = Uneven("ddp-last");
  std::tie(job.axes.loss, job.layout.tp) = GetParam();
  job.accumulation_steps = 1;
  job.micro_batch_size = 3;
  Job alone = job;
  alone.axes.loss = Partition::Loss::upcast_logits;
  alone.layout.tp = 1;
  const RunOutcome one = Executed(alone, 1, Exact());
  // Whole columns or rows of a matrix are a rank's: what both have in whole are the norms.
  const std::vector<RunOutcome> ranks =
      job.layout.tp == 1 ? std::vector{Executed(job, 1, Exact())} : ExecutedTogether(job, 1, Exact());
  for (const RunOutcome& rank : ranks) {
    ParameterParts norms;
    for (const auto& [key, parts] : rank.gradients) {
      if (key.first.find("norm") != std::string::npos) {
        norms[key] = parts;
      }
    }
    ASSERT_FALSE(norms.empty());
    EXPECT_LT(FarthestFrom(norms, Of(one.gradients)), 1e-10);
    EXPECT_NEAR(*rank.steps.front().loss, *one.steps.front().loss, 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(Execute, UnevenLosses,
                         testing::Combine(testing::Values(Partition::Loss::upcast_logits,
                                                          Partition::Loss::low_precision,
                                                          Partition::Loss::softmax_saving),
                                          testing::Values(1, 2)));

}  // namespace
}  // namespace tidemark::uneven_lengths_test
