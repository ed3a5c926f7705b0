// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "sim/memory/capacity.h"
#include "tests/sim/allocation_log.h"
#include "tests/sim/dice.h"

namespace tidemark::allocator_capacity_test {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr std::int64_t kPage = 2 * kMiB;
constexpr Bytes kUnlimited = Bytes(std::numeric_limits<std::int64_t>::max());
const AllocatorOptions kExact{.kind = AllocatorKind::exact};
const AllocatorOptions kTorch{.kind = AllocatorKind::torch_caching};
const AllocatorOptions kExpandable{.kind = AllocatorKind::torch_caching, .expandable_segments = true};

Bytes MiB(std::int64_t count) { return Bytes(count * kMiB); }
Request New(std::uint32_t id, Bytes bytes) { return {true, id, bytes, 0}; }
Request Gone(std::uint32_t id) { return {false, id, Bytes(0), 0}; }

TEST(Replay, OnALargeDeviceIsFine) {
  const std::vector<Request> log = {New(0, MiB(30)), New(1, MiB(2)), Gone(0), Gone(1)};
  const Outcome outcome = Replay(log, kTorch, MiB(50));
  EXPECT_EQ(outcome.kind, Outcome::Kind::fine);
  EXPECT_EQ(outcome.cache_flushes, 0);
  EXPECT_EQ(outcome.allocated_peak, MiB(32));
  EXPECT_EQ(outcome.reserved_peak, MiB(50));
}

TEST(Replay, CountsTheFlushesThatMadeItFit) {
  const std::vector<Request> log = {New(0, MiB(30)), Gone(0), New(0, MiB(40)), Gone(0), New(0, MiB(50))};
  const Outcome outcome = Replay(log, kTorch, MiB(50));
  EXPECT_EQ(outcome.kind, Outcome::Kind::flushed);
  EXPECT_EQ(outcome.cache_flushes, 2);
}

TEST(Replay, NamesTheRequestThatWasRefused) {
  const std::vector<Request> log = {New(0, MiB(30)), Gone(0), New(1, MiB(20)), New(2, MiB(32)), Gone(1)};
  const Outcome outcome = Replay(log, kTorch, MiB(50));
  EXPECT_EQ(outcome.kind, Outcome::Kind::out_of_memory);
  EXPECT_EQ(outcome.failed_request, 3U);
  EXPECT_EQ(outcome.failed_bytes, MiB(32));
  EXPECT_EQ(outcome.cache_flushes, 1);  // 20 MiB were cut from the 30, so that the flush was in vain
}

TEST(MinimumCapacity, OfTheExactAllocatorIsItsPeakToTheByte) {
  const std::vector<Request> log = {New(0, Bytes(1000)), New(1, Bytes(1)), Gone(0), New(2, Bytes(500))};
  EXPECT_EQ(MinimumCapacity(log, kExact), Bytes(1001));
  EXPECT_EQ(Replay(log, kExact, Bytes(1001)).kind, Outcome::Kind::fine);
  EXPECT_EQ(Replay(log, kExact, Bytes(1000)).kind, Outcome::Kind::out_of_memory);
}

TEST(MinimumCapacity, OfNothingIsNothing) {
  EXPECT_EQ(MinimumCapacity({}, kTorch), Bytes(0));
  EXPECT_EQ(MinimumCapacity({}, kExact), Bytes(0));
}

TEST(MinimumCapacity, LiesBelowTheReservedPeakWhereAFlushHelps) {
  // Unlimited: 30 MiB stay cached beside the 40. With 40 MiB the first segment is given back in time.
  const std::vector<Request> log = {New(0, MiB(30)), Gone(0), New(0, MiB(40))};
  EXPECT_EQ(Replay(log, kTorch, kUnlimited).reserved_peak, MiB(70));
  EXPECT_EQ(MinimumCapacity(log, kTorch), MiB(40));
}

TEST(MinimumCapacity, MayBeFollowedByCapacitiesThatFail) {
  const std::vector<Request> log = {New(0, MiB(20)), Gone(0), New(1, MiB(22)),
                                    New(2, MiB(10)), Gone(1), New(3, MiB(30))};
  // With 40 MiB tensor 1 drives out the cached 20, so that tensor 2 gets a segment of 10, and 10 + 30 fit at the end.
  // With 42 to 48 the 20 stay, tensor 2 pins half of them, and 20 + 30 do not fit. With 50 they do.
  EXPECT_EQ(MinimumCapacity(log, kTorch), MiB(40));
  EXPECT_EQ(Replay(log, kTorch, MiB(38)).kind, Outcome::Kind::out_of_memory);
  EXPECT_EQ(Replay(log, kTorch, MiB(40)).cache_flushes, 2);
  EXPECT_EQ(Replay(log, kTorch, MiB(40)).kind, Outcome::Kind::flushed);
  EXPECT_EQ(Replay(log, kTorch, MiB(42)).kind, Outcome::Kind::out_of_memory);
  EXPECT_EQ(Replay(log, kTorch, MiB(48)).kind, Outcome::Kind::out_of_memory);
  EXPECT_EQ(Replay(log, kTorch, MiB(50)).kind, Outcome::Kind::flushed);
}

TEST(MinimumCapacity, OfThePoolsOfCudaIsInPagesOf32MiB) {
  const std::vector<Request> log = {New(0, MiB(30)), New(1, MiB(10)), Gone(0), New(0, MiB(31))};
  // 30 + 10 MiB need two pages; the 31 do not fit into the hole of 30, and behind the 10 there are 24: one page more.
  EXPECT_EQ(MinimumCapacity(log, {.kind = AllocatorKind::cuda_async}), MiB(96));
}

struct Tally {
  int runs = 0, flush_helped = 0, not_monotone = 0;
};

/// Whether the capacity that was found is the first success: nothing between it and the first capacity at which a run
/// could differ, one byte less, or one page less, or any page below succeeds.
Tally TryCapacities(const AllocatorOptions& options, std::uint32_t seeds) {
  Tally tally;
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    const std::vector<Request> log = RandomLog(seed);
    const auto succeeds = [&](Bytes capacity) { return Replay(log, options, capacity).succeeded(); };
    const Bytes peak = Replay(log, options, kUnlimited).reserved_peak;
    const Bytes minimum = MinimumCapacity(log, options);
    EXPECT_TRUE(succeeds(minimum)) << "seed " << seed;
    EXPECT_FALSE(succeeds(minimum - Bytes(1))) << "seed " << seed;
    Dice dice(seed);
    for (int i = 0; i < 20; ++i) {
      const Bytes below = Bytes(dice.Number(0, minimum.count() - 1));
      EXPECT_FALSE(succeeds(below)) << "seed " << seed << " at " << below.count();
    }
    bool fails_above = false;
    for (Bytes capacity; capacity <= peak; capacity += Bytes(kPage)) {
      if (capacity < minimum) {
        EXPECT_FALSE(succeeds(capacity)) << "seed " << seed << " at " << capacity.count();
      } else {
        fails_above = fails_above || !succeeds(capacity);
      }
    }
    if (options.memory_fraction == 0) {
      EXPECT_TRUE(succeeds(peak)) << "seed " << seed;
    }
    ++tally.runs;
    tally.flush_helped += minimum < peak ? 1 : 0;
    tally.not_monotone += fails_above ? 1 : 0;
  }
  return tally;
}

class EveryAllocatorMinimum : public testing::TestWithParam<std::pair<std::string, AllocatorOptions>> {};

TEST_P(EveryAllocatorMinimum, IsTheFirstCapacityThatSucceeds) {
  EXPECT_EQ(TryCapacities(GetParam().second, 200).runs, 200);
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryAllocatorMinimum, testing::ValuesIn(EveryAllocator()),
                         [](const auto& row) { return row.param.first; });

TEST(MinimumCapacityProperty, LiesWhereABisectionWouldMissIt) {
  const Tally tally = TryCapacities(kTorch, 400);
  EXPECT_GT(tally.flush_helped, 100) << "of 400 logs";
  EXPECT_GT(tally.not_monotone, 0) << "of 400 logs; else a bisection would pass these tests too";
}

TEST(MinimumCapacityProperty, LiesBelowThePeakWithExpandableSegmentsToo) {
  EXPECT_GT(TryCapacities(kExpandable, 400).flush_helped, 100) << "of 400 logs";
}

}  // namespace
}  // namespace tidemark::allocator_capacity_test
