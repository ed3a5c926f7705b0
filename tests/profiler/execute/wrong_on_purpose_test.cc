// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "profiler/execute/numerics.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::wrong_on_purpose_test {
namespace {

// Mistakes whose damage can be derived: each is run, and is wrong by exactly its factor. In fp64, "exactly" means
// 1e-10.

/// What one rank's first optimizer update reads, of each parameter.
using Gradient = std::map<ParameterKey, std::vector<double>>;

Gradient Whole(const ParameterParts& parts) {
  Gradient gradient;
  for (const auto& [key, stretches] : parts) {
    gradient[key] = stretches.at(0);
  }
  return gradient;
}

Decoder& DecoderOf(Job& job) { return std::get<Decoder>(job.network.shape); }

RunOptions Exactly(std::int64_t update = 1) {
  return {.seed = 7, .exact = true, .keep_gradients = true, .kept_update = update};
}

Gradient GradientOf(const Job& job, const std::vector<RunStep>& steps, std::int64_t update = 1) {
  return Whole(RunTogether(job, steps, Exactly(update)).front().gradients);
}

Gradient GradientOf(const Job& job, std::int64_t update = 1) {
  return GradientOf(job, LoweredSteps(job, 1).steps(), update);
}

/// The sum over the training's microbatches `begin` to `end`, each a mean over its own samples, of all ranks together:
/// of one batch of the first samples, times their number, less those before.
Gradient SumOf(const Job& job, std::int64_t begin, std::int64_t end) {
  const auto first = [&](std::int64_t microbatches) {
    Job one = SmallJob("ddp-every");
    one.network = job.network;
    one.axes.packing = job.axes.packing;
    one.micro_batch_size = job.micro_batch_size * microbatches * job.layout.dp;
    one.accumulation_steps = 1;
    return Whole(Executed(one, 1, Exactly()).gradients);
  };
  Gradient sum = first(end);
  const Gradient before = begin > 0 ? first(begin) : Gradient();
  for (auto& [key, values] : sum) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      values[i] *= static_cast<double>(end);
      values[i] -= begin > 0 ? before.at(key)[i] * static_cast<double>(begin) : 0;
    }
  }
  return sum;
}

/// The length of `found` - (a x + b y) over that of `found`, of all parameters together.
double Off(const Gradient& found, double a, const Gradient& x, double b = 0, const Gradient& y = {}) {
  double difference = 0, length = 0;
  for (const auto& [key, values] : found) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const double expected = a * x.at(key)[i] + (b == 0 ? 0 : b * y.at(key)[i]);
      difference += (values[i] - expected) * (values[i] - expected);
      length += values[i] * values[i];
    }
  }
  return std::sqrt(difference / length);
}

const double kBound = BoundOf(DType::fp64, 0);

/// On separate weights, so that sums of parameters line up; updates move weights by next to nothing, so that gradients
/// of several windows are those of the same weights.
Job StillJob(const std::string& strategy, std::int64_t microbatches) {
  Job job = SmallJob(strategy);
  job.axes.packing = {false, false};
  job.accumulation_steps = microbatches;
  job.optimizer = OptimizerKind::sgd;
  job.axes.optimizer_step.clip_norm = 1e-12;
  return job;
}

Job SmallPair(const std::string& strategy) {
  Job job = StillJob(strategy, 2);
  job.layout.dp = 2;
  return job;
}

bool IsLoss(const Program&, const Compute& compute) {
  const auto* loss = std::get_if<CrossEntropy>(&compute.op);
  return loss != nullptr && loss->backward && compute.scale != Rational(1);
}

/// Changes the kernels of a step that `wanted` picks, number `skipped` and later.
void Mutate(LoweredSteps& lowered, bool (*wanted)(const Program&, const Compute&), Rational scale,
            std::int64_t skipped = 0) {
  std::int64_t changed = 0;
  for (Node& node : lowered.first().nodes) {
    auto* compute = std::get_if<Compute>(&node);
    if (compute != nullptr && wanted(lowered.first(), *compute) && skipped-- <= 0) {
      compute->scale = scale;
      ++changed;
    }
  }
  EXPECT_GT(changed, 0);
}

class EveryPlainStrategy : public testing::TestWithParam<std::string> {};

// Negative controls: the same step with a factor left out is far beyond any bound that a right run must keep.
TEST_P(EveryPlainStrategy, IsTwiceItsGradientWithoutTheLossesOneOverM) {
  const Job job = StillJob(GetParam(), 2);
  LoweredSteps lowered(job, 1);
  EXPECT_LT(Off(GradientOf(job, lowered.steps()), 0.5, SumOf(job, 0, 2)), kBound);
  const double working = BoundOf(DType::bf16, RoundingsOf(lowered.first(), 2, 1));
  Mutate(lowered, IsLoss, Rational(1));
  EXPECT_LT(Off(GradientOf(job, lowered.steps()), 1, SumOf(job, 0, 2)), kBound);
  EXPECT_GT(Off(GradientOf(job, lowered.steps()), 0.5, SumOf(job, 0, 2)), working);
}

TEST_P(EveryPlainStrategy, IsHalfTheFirstMicrobatchWhereTheSecondIsDropped) {
  const Job job = StillJob(GetParam(), 2);
  LoweredSteps lowered(job, 1);
  const double working = BoundOf(DType::bf16, RoundingsOf(lowered.first(), 2, 1));
  Mutate(lowered, IsLoss, Rational(0), 1);
  const Gradient found = GradientOf(job, lowered.steps());
  EXPECT_LT(Off(found, 0.5, SumOf(job, 0, 1)), kBound);
  EXPECT_GT(Off(found, 0.5, SumOf(job, 0, 2)), working);
}

// A last window of one microbatch, divided by two.
TEST_P(EveryPlainStrategy, IsHalfItsGradientInALastWindowThatIsNotRescaled) {
  Job job = StillJob(GetParam(), 2);
  job.last_window = {LastWindow::Policy::not_rescaled, 1};
  LoweredSteps lowered(job, 1);
  const double working = BoundOf(DType::bf16, RoundingsOf(lowered.first(), 1, 1));
  const Gradient found = GradientOf(job, lowered.steps());
  EXPECT_LT(Off(found, 0.5, SumOf(job, 0, 1)), kBound);
  EXPECT_GT(Off(found, 1, SumOf(job, 0, 1)), working);
  job.last_window.policy = LastWindow::Policy::rescaled;
  EXPECT_LT(Off(GradientOf(job), 1, SumOf(job, 0, 1)), kBound);
}

INSTANTIATE_TEST_SUITE_P(Execute, EveryPlainStrategy, testing::Values("ddp-last", "ddp-every", "nanotron", "megatron"),
                         StrategyName);

bool IsDivision(const Program& program, const Compute& compute) {
  return program.names[compute.name.index] == "gradient to bucket";
}

TEST(WrongOnPurpose, WithoutOneOverNTheGradientIsNTimesItself) {
  const Job job = SmallPair("ddp-last");
  LoweredSteps lowered(job, 1);
  EXPECT_LT(Off(GradientOf(job, lowered.steps()), 0.5, SumOf(job, 0, 2)), kBound);
  Mutate(lowered, IsDivision, Rational(1));
  EXPECT_LT(Off(GradientOf(job, lowered.steps()), 1, SumOf(job, 0, 2)), kBound);
}

// DDP that synchronises every microbatch reduces what it has reduced already. With 1/N before the sum that is exact:
// the part that is reduced is the same on all N ranks. A plain sum multiplies it by N. Of two microbatches with sums A1
// and A2 over the ranks (each with the losses' 1/M) the result is N A1 + A2.
TEST(WrongOnPurpose, APlainSumThatIsReducedAgainCountsTheFirstMicrobatchNTimes) {
  const Job job = SmallPair("ddp-every");
  LoweredSteps lowered(job, 1);
  EXPECT_LT(Off(GradientOf(job, lowered.steps()), 0.5, SumOf(job, 0, 2)), kBound);
  Mutate(lowered, IsDivision, Rational(1));
  // SumOf is of means over both ranks' samples: N of them are the ranks' sum; M = N = 2.
  EXPECT_LT(Off(GradientOf(job, lowered.steps()), 2, SumOf(job, 0, 1), 1, SumOf(job, 1, 2)), kBound);
}

// Colossal-AI's documented loop (docs/source/en/features/gradient_accumulation_with_booster.md) synchronises and steps
// where idx % (GA - 1) == 0: the first window has one microbatch, later ones GA - 1, and each is divided by GA.
TEST(WrongOnPurpose, TheDocumentedPredicateOfColossalAiMakesWindowsOfOneAndThenOneTooFew) {
  for (const std::int64_t accumulation : {2, 3, 4, 5}) {
    Job job = StillJob("colossalai-ddp", accumulation);
    job.axes.sync.when = Sync::When::custom;
    job.axes.sync.expression = "i % (steps - 1) == 0";
    const std::int64_t second = accumulation == 2 ? 1 : accumulation - 1;  // microbatches of the second window
    const RunOutcome run = Executed(job, 1, Exactly());
    EXPECT_EQ(run.steps.front().parameters_changed_at, (std::vector<std::int64_t>{0, second}));
    const double share = 1.0 / static_cast<double>(accumulation);
    EXPECT_LT(Off(Whole(run.gradients), share, SumOf(job, 0, 1)), kBound);
    EXPECT_LT(Off(GradientOf(job, 2), share, SumOf(job, 1, 1 + second)), kBound) << accumulation;
  }
}

TEST(WrongOnPurpose, ThePredicateThatIsRightMakesOneWindow) {
  Job job = StillJob("colossalai-ddp", 4);
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = "(i + 1) % steps == 0";
  EXPECT_LT(Off(GradientOf(job), 0.25, SumOf(job, 0, 4)), kBound);
  EXPECT_EQ(Executed(job, 1).steps.front().parameters_changed_at, std::vector<std::int64_t>{3});
}

// The next forward pass rebuilds the buckets, which nobody uses again: they are made all the same. On one rank, where
// nothing is lost by it, the gradient is that of both microbatches.
TEST(WrongOnPurpose, AWindowThatSynchronisesItsFirstMicrobatchOnlyIsExecuted) {
  Job job = StillJob("ddp-last", 2);
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = "i == 0";
  job.axes.sync.step_expression = "i == 1";
  EXPECT_LT(Off(GradientOf(job), 0.5, SumOf(job, 0, 2)), kBound);
}

// A sum in bf16 (8 significant bits) of equal addends g = m 2^q, 1 <= m < 2, from 0 on. Where the sum is in
// [2^(q+8), 2^(q+9)) its last place is 2^(q+1), so that g is more than half of it unless m = 1 (then the tie is broken
// to even, and the sum stays at 2^(q+8)): it goes on in whole places up to 2^(q+9), where g is less than half a place.
// There it stalls: every element ends as a power of two, however many microbatches follow.
TEST(WrongOnPurpose, ASumInBf16Stalls) {
  Job one = SmallJob("ddp-last");
  DecoderOf(one).vocabulary = 256;
  one.sequence_length = 4;
  one.micro_batch_size = 1;
  one.accumulation_steps = 1;
  Job many = one;
  many.accumulation_steps = 1024;  // each divided by as many, which is exact
  const RunOptions options{.seed = 7, .text = std::string(64, 'a'), .keep_gradients = true};
  const Gradient first = Whole(Executed(one, 1, options).gradients), sum = Whole(Executed(many, 1, options).gradients);
  std::int64_t stalled = 0;
  for (const auto& [key, values] : first) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::abs(values[i]) > 1e-20) {
        int exponent = 0;  // of m / 2
        const double half = std::frexp(std::abs(values[i]), &exponent);
        const int q = exponent - 1 - 10;
        ASSERT_EQ(std::abs(sum.at(key)[i]), std::ldexp(1.0, q + (half == 0.5 ? 8 : 9))) << key.first << " " << i;
        ++stalled;
      }
    }
  }
  EXPECT_GT(stalled, 10'000);
  const auto wide =
      Whole(Executed(many, 1, {.seed = 7, .text = options.text, .exact = true, .keep_gradients = true}).gradients);
  const auto right =
      Whole(Executed(one, 1, {.seed = 7, .text = options.text, .exact = true, .keep_gradients = true}).gradients);
  EXPECT_LT(Off(wide, 1, right), kBound);
}

}  // namespace
}  // namespace tidemark::wrong_on_purpose_test
