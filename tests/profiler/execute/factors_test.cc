// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/profiler/execute/farthest.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::factors_test {
namespace {

// What systems that are wrong on purpose make of a gradient, number by number: in fp64, so that what is left is exactly
// the factor or the sum that they are wrong by.

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
Job OneBatchOfPairs(const Job& job) {
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
  const ParameterParts one = Executed(OneBatchOfPairs(job), 1, Exact()).gradients;
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
  const ParameterParts one = Executed(OneBatchOfPairs(fused), 1, Exact()).gradients;
  for (const RunOutcome& rank : ExecutedTogether(eager, 1, Exact())) {
    EXPECT_LT(FarthestFrom(rank.gradients, [&](const ParameterKey& key, std::int64_t begin,
                                               std::size_t i) { return one.at(key).at(begin)[i]; }),
              1e-10);
  }
}

INSTANTIATE_TEST_SUITE_P(Execute, EveryGradCache,
                         testing::Values("gradcache", "gradcache-every", "gradcache-forward-outside"), StrategyName);

// Each rank's surrogate carries the gradient of the loss over all pairs with respect to its own rows, and the right
// gradient is the sum over ranks; DDP averages. So 1/N of it, in every number.
TEST(GradCacheUnscaled, IsTooSmallByExactlyTheNumberOfRanks) {
  for (const std::int64_t ranks : {2, 4}) {
    const Job job = PairJob("gradcache-unscaled", ranks);
    const ParameterParts one = Executed(OneBatchOfPairs(job), 1, Exact()).gradients;
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

/// The first node of this kind that `wanted` picks.
template <class Leaf, class Wanted>
std::vector<Node>::iterator FirstOf(Program& program, Wanted wanted) {
  const auto found = std::find_if(program.nodes.begin(), program.nodes.end(), [&](const Node& node) {
    const auto* leaf = std::get_if<Leaf>(&node);
    return leaf != nullptr && wanted(*leaf);
  });
  EXPECT_NE(found, program.nodes.end());
  return found;
}

// Megatron's gradient buffer is scaled by 1/N and reduced into each rank's own part of it. Done after both of M = 2
// microbatches on N = 2 ranks, the other rank's part holds only scaled numbers when it is reduced again, and the own
// part what has been reduced: the owner r gets
//   A1 / N + g[other, 1] / N^2 + A2,  with A the mean over ranks of g, each g with the loss's 1/M:
// when the second sum begins, the owner has (A1 + g[r, 2]) / N there and the other (g[other, 1] / N + g[other, 2]) / N.
TEST(InPlaceReduceScatter, DoneInEachMicrobatchMixesReducedWithLocalNumbers) {
  Job job = SmallJob("megatron-dist-opt");
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.hidden = 128;  // an even number of aligned parts: both ranks run one program
  decoder.head_size = 32;
  job.micro_batch_size = 1;
  job.layout.dp = 2;
  Job one = SmallJob("ddp-every");
  one.network = job.network;
  one.axes.packing = job.axes.packing;
  one.accumulation_steps = 1;
  std::vector<ParameterParts> mean(5);  // over the first 1, 2 and 4 samples
  for (const std::int64_t samples : {1, 2, 4}) {
    one.micro_batch_size = samples;
    mean[static_cast<std::size_t>(samples)] = Executed(one, 1, Exact()).gradients;
  }
  LoweredSteps lowered(job, 1);
  Program& program = lowered.first();
  const auto is_event = [&](const Record& leaf) { return program.events[leaf.event.index] == "bucket reduced"; };
  const auto last = FirstOf<Record>(program, is_event) + 2;  // and the wait
  const auto first = FirstOf<Scale>(program, [](const Scale&) { return true; });
  std::vector<Node> sync(first, last);
  std::erase_if(sync, [](const Node& node) {
    return std::holds_alternative<Begin>(node) || std::holds_alternative<End>(node) ||
           std::holds_alternative<Alloc>(node) || std::holds_alternative<Free>(node);
  });
  const auto end = FirstOf<End>(program, [](const End& leaf) { return leaf.phase == Phase::backward; });
  const auto expected = [&](std::size_t rank, bool twice) {
    return [&, rank, twice](const ParameterKey& key, std::int64_t begin, std::size_t i) {
      const auto sum = [&](std::size_t samples) {
        return static_cast<double>(samples) * mean[samples].at(key).at(0)[static_cast<std::size_t>(begin) + i];
      };
      const double both = sum(2), other = rank == 0 ? both - sum(1) : sum(1), later = sum(4) - sum(2);
      return twice ? both / 8 + other / 8 + later / 4 : both / 4 + later / 4;
    };
  };
  const auto check = [&](bool twice) {
    const std::vector<RunOutcome> ranks = RunTogether(job, lowered.steps(), Exact());
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      EXPECT_LT(FarthestFrom(ranks[rank].gradients, expected(rank, twice)), 1e-10) << rank;
      EXPECT_GT(FarthestFrom(ranks[rank].gradients, expected(rank, !twice)), 1e-3) << rank;
    }
  };
  check(false);
  program.nodes.insert(end + 1, sync.begin(), sync.end());
  check(true);
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
}  // namespace tidemark::factors_test
