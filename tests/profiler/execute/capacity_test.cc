// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/strategies/strategy.h"
#include "tests/base/sanitizer.h"
#include "tests/profiler/execute/executed_job.h"
#include "tests/profiler/execute/fake_world.h"
#include "tests/sim/dice.h"

namespace tidemark::capacity_test {
namespace {

// What is predicted to happen under a limit of the device's memory (fine, fine after so many flushes of the cache, out
// of memory at a request) is what happens, for whatever strategy is executed: rank 0 does all of its work in real
// memory, and the other ranks are not there (FakeWorld). tests/cli/capacity_test.py asks real ranks.

constexpr std::int64_t kSteps = 2;  // the second begins with what the first has cached
constexpr Bytes kPage(2 << 20);

/// Two sizes: with tensors of some KiB, which share segments of 2 MiB, and of some MiB, which have segments of their
/// own.
enum class Size : std::uint8_t { small, large };

/// On four data-parallel ranks; in two replicas of two where the system wants some.
Job JobOf(const std::string& strategy, Size size) {
  Job job = OracleJob(strategy, 2);
  job.layout.dp = 4;
  job.micro_batch_size = 2;
  job.sequence_length = size == Size::small ? 16 : 128;
  const bool small = size == Size::small;
  const auto shrink = [&](Decoder& decoder) {
    decoder.layers = 2;
    decoder.hidden = small ? 64 : 32;
    decoder.ffn = small ? 96 : 64;
    decoder.heads = decoder.kv_heads = 4;
    decoder.head_size = small ? 16 : 8;
    decoder.vocabulary = small ? 512 : 2048;
  };
  if (auto* pair = std::get_if<DualEncoder>(&job.network.shape)) {
    shrink(pair->first);
    shrink(pair->second);
    pair->representation = 16;
  } else {
    shrink(std::get<Decoder>(job.network.shape));
  }
  Job small_bucket = job;  // DeepSpeed's has 5e8 elements, whatever the model
  small_bucket.axes.sync.bucket_elements = std::min<std::int64_t>(job.axes.sync.bucket_elements, 20'000);
  if (FindStrategy(strategy)->Accept(small_bucket)) {
    job = small_bucket;
  }
  if (!FindStrategy(strategy)->Accept(job)) {
    job.axes.shard.replicas = 2;
  }
  return job;
}

std::vector<std::string> AllNames() {
  std::vector<std::string> names;
  for (const Strategy& strategy : AllStrategies()) {
    names.push_back(strategy.defaults.name);
  }
  return names;
}

Prediction Predicted(const Job& job, std::optional<Bytes> capacity) {
  PredictOptions options;
  options.steps = FirstSteps(kSteps);
  options.minimum = !capacity;
  options.capacity = capacity;
  options.traces = false;
  return *Predict(job, options);
}

class EveryStrategyUnderALimit : public testing::TestWithParam<std::string> {
 protected:
  /// Executes the job on a device of this size, and compares what becomes of it with what was predicted.
  static Outcome::Kind Compare(const Job& job, const LoweredSteps& lowered, Bytes capacity) {
    SCOPED_TRACE(testing::Message() << "a device of " << capacity.count() << " bytes");
    const CapacityOutcome expected = *Predicted(job, capacity).capacity;
    FakeWorld world = FakeWorld::Of(job);
    const auto run = RunSteps(job, lowered.steps(), {.capacity = capacity}, world);
    if (!run) {
      ADD_FAILURE() << run.error().Text();
      return expected.outcome.kind;
    }
    EXPECT_EQ(run->cache_flushes, expected.outcome.cache_flushes);
    EXPECT_EQ(run->ran_out, !expected.outcome.succeeded());
    const auto& out = run->steps.back().out_of_memory;
    EXPECT_EQ(out.has_value(), run->ran_out);
    if (out && !expected.outcome.succeeded()) {
      EXPECT_EQ(out->requested, expected.outcome.failed_bytes);
      EXPECT_EQ(out->cache_flushes, expected.outcome.cache_flushes);
      EXPECT_EQ(out->at, expected.at);
      EXPECT_EQ(std::ssize(run->steps) - 1, std::max<std::int64_t>(expected.at.step, 0));  // before a step: the first
      EXPECT_LE(out->reserved, capacity);
    }
    EXPECT_LE(run->mapped_peak, capacity + Bytes(4096) * std::ssize(run->trace.memory));
    return expected.outcome.kind;
  }

  /// At the reserved peak, at the least that does, one page below, and at `random` limits between nothing and the peak.
  static void CompareAtLimits(const Job& job, int random) {
    const LoweredSteps lowered(job, kSteps);
    const Prediction unlimited = Predicted(job, {});
    const Bytes peak = *unlimited.roles.front().reserved, least = *unlimited.roles.front().minimum;
    EXPECT_EQ(Compare(job, lowered, peak), Outcome::Kind::fine);
    EXPECT_NE(Compare(job, lowered, least), Outcome::Kind::out_of_memory);
    EXPECT_EQ(Compare(job, lowered, std::max(least - kPage, Bytes())), Outcome::Kind::out_of_memory);
    Dice dice(7);
    for (int i = 0; i < random; ++i) {
      Compare(job, lowered, Bytes(dice.Number(peak.count() / 4, peak.count())));
    }
  }
};

TEST_P(EveryStrategyUnderALimit, EndsAsPredictedWithSmallTensors) {
  CompareAtLimits(JobOf(GetParam(), Size::small), Rounds(20));
}

TEST_P(EveryStrategyUnderALimit, EndsAsPredictedWithLargeTensors) {
  CompareAtLimits(JobOf(GetParam(), Size::large), Rounds(20));
}

TEST_P(EveryStrategyUnderALimit, EndsAsPredictedWithOtherAllocators) {
  Job job = JobOf(GetParam(), Size::small);
  for (const AllocatorKind kind : {AllocatorKind::arena, AllocatorKind::cuda_async, AllocatorKind::torch_caching}) {
    job.allocator.kind = kind;
    job.allocator.expandable_segments = kind == AllocatorKind::torch_caching;
    CompareAtLimits(job, Rounds(4));
  }
}

TEST_P(EveryStrategyUnderALimit, IsSharpToOneByteWithoutRounding) {
  for (const Size size : AllOrLast({Size::large, Size::small})) {
    Job job = JobOf(GetParam(), size);
    job.allocator.kind = AllocatorKind::exact;
    const LoweredSteps lowered(job, kSteps);
    const Prediction unlimited = Predicted(job, {});
    const Bytes peak = unlimited.roles.front().peak.allocated;
    EXPECT_EQ(*unlimited.roles.front().minimum, peak);
    EXPECT_EQ(Compare(job, lowered, peak), Outcome::Kind::fine);
    EXPECT_EQ(Compare(job, lowered, peak - Bytes(1)), Outcome::Kind::out_of_memory);
  }
}

INSTANTIATE_TEST_SUITE_P(Capacity, EveryStrategyUnderALimit, testing::ValuesIn(AllNames()), StrategyName);

}  // namespace
}  // namespace tidemark::capacity_test
