// SPDX-License-Identifier: Apache-2.0
#include "profiler/execute/expert_choices.h"

#include <gtest/gtest.h>

#include <array>

#include "profiler/execute/numerics.h"
#include "tests/profiler/execute/executed_job.h"

namespace tidemark::expert_choices_test {
namespace {

constexpr std::int64_t kLayers = 2, kSamples = 4, kTokens = 16;

Job WithExperts(std::int64_t count, std::int64_t per_token) {
  Job job = SmallJob("ddp-last");
  auto& experts = std::get<Decoder>(job.network.shape).experts;
  experts.count = count;
  experts.per_token = per_token;
  experts.ffn = 48;
  return job;
}

/// Every token goes to the experts from one number on.
ExpertChoices AllTo(const Job& job, std::int64_t first, std::int64_t samples = kSamples) {
  ExpertChoices choices(job);
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    for (std::int64_t token = 0; token < samples * kTokens; ++token) {
      choices.Put(layer, token / kTokens, token % kTokens, std::array{first, first + 1});
    }
  }
  return choices;
}

double Departure(const Job& job, const RunOutcome& found, const RunOutcome& expected) {
  return DistanceOf(*Model::Of(job, {0, 1}), found.gradients, expected.gradients, kExactFloor).highest;
}

TEST(ExpertChoices, AreNoneWithoutExperts) {
  EXPECT_TRUE(ExpertChoices(SmallJob("ddp-last")).empty());
  EXPECT_TRUE(Executed(SmallJob("ddp-last"), 1, Exact()).choices.empty());
}

TEST(ExpertChoices, OfARunAreThoseOfAllItsTokens) {
  const Job job = WithExperts(4, 2);
  RunOutcome run = Executed(job, 2, Exact());
  EXPECT_EQ(run.choices.tokens(), kLayers * kSamples * kTokens);
  EXPECT_TRUE(run.choices.Join(*MakeSingleWorld()).ok());
  const RunOutcome whole = Executed(OneBatch(job), 1, Exact());
  EXPECT_EQ(run.choices.OthersThan(whole.choices), 0) << "however samples are cut";
}

TEST(ExpertChoices, AreMadeInLayersThatHaveExperts) {
  Job job = WithExperts(4, 2);
  std::get<Decoder>(job.network.shape).experts.dense_layers = 1;
  RunOutcome run = Executed(job, 2, Exact());
  EXPECT_EQ(run.choices.tokens(), (kLayers - 1) * kSamples * kTokens);
  EXPECT_TRUE(run.choices.Join(*MakeSingleWorld()).ok()) << "every one is known";
  const RunOutcome whole = Executed(OneBatch(job), 1, Exact());
  EXPECT_EQ(run.choices.OthersThan(whole.choices), 0);
}

TEST(ExpertChoices, AreFollowed) {
  const Job job = WithExperts(4, 2);
  const RunOutcome run = Executed(job, 1, Exact());
  RunOptions options = Exact();
  options.choices = &run.choices;
  const RunOutcome same = Executed(OneBatch(job), 1, options);
  EXPECT_LT(Departure(job, run, same), 1e-10);
  const ExpertChoices others = AllTo(job, 2);
  options.choices = &others;
  const RunOutcome other = Executed(OneBatch(job), 1, options);
  EXPECT_EQ(other.choices.OthersThan(others), 0);
  EXPECT_GT(Departure(job, run, other), 0.1) << "two experts have no token";
}

TEST(ExpertChoices, AreComparedInAnyOrder) {
  const Job job = WithExperts(4, 2);
  ExpertChoices one = AllTo(job, 1);
  const ExpertChoices other = AllTo(job, 1);
  one.Put(1, 3, 5, std::array<std::int64_t, 2>{2, 1});
  EXPECT_EQ(one.OthersThan(other), 0);
  one.Put(1, 3, 5, std::array<std::int64_t, 2>{2, 3});
  EXPECT_EQ(one.OthersThan(other), 1);
}

TEST(ExpertChoices, ThatNobodyHasMadeAreAFault) {
  const Job job = WithExperts(4, 2);
  EXPECT_TRUE(AllTo(job, 1).Join(*MakeSingleWorld()).ok());
  EXPECT_FALSE(AllTo(job, 1, kSamples - 1).Join(*MakeSingleWorld()).ok());
}

// Without it the check in the job's own precision would fail jobs that are right: some token goes to another expert
// than in exact arithmetic, whose gradient is then far away.
TEST(ExpertChoices, OfFewBitsAreFollowedToAGradientThatIsNear) {
  Job job = WithExperts(64, 1);
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.ffn_kind = Decoder::Ffn::two_layer;
  decoder.experts.ffn = 256;
  job.sequence_length = 64;
  Job whole = OneBatch(job);
  whole.sequence_length = job.sequence_length;
  RunOptions options{.seed = 7, .keep_gradients = true};
  const RunOutcome run = Executed(job, 1, options);
  options.exact = true;
  const RunOutcome own = Executed(whole, 1, options);
  options.choices = &run.choices;
  const RunOutcome followed = Executed(whole, 1, options);
  EXPECT_GT(run.choices.OthersThan(own.choices), 0);
  const auto distance = [&](const RunOutcome& reference) {
    return DistanceOf(*Model::Of(job, {0, 1}), run.gradients, reference.gradients, kWorkingFloor).highest;
  };
  EXPECT_LT(distance(followed), 0.05);
  EXPECT_GT(distance(own), 2 * distance(followed));
}

}  // namespace
}  // namespace tidemark::expert_choices_test
