// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <limits>
#include <random>
#include <set>
#include <vector>

#include "sim/memory/capacity.h"

namespace tidemark {
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

/// A small log with pressure: few sizes, many frees, two streams.
std::vector<Request> RandomLog(std::uint32_t seed) {
  std::mt19937 random(seed);
  static constexpr std::int64_t kSizes[] = {512, kMiB, 2 * kMiB, 5 * kMiB, 9 * kMiB, 12 * kMiB, 21 * kMiB, 33 * kMiB};
  std::vector<Request> log;
  std::vector<std::uint32_t> live, spare;
  std::uint32_t ids = 0;
  for (int i = 0; i < 40; ++i) {
    if (!live.empty() && random() % 100 < 45) {
      std::swap(live[random() % live.size()], live.back());
      log.push_back(Gone(live.back()));
      spare.push_back(live.back());
      live.pop_back();
      continue;
    }
    std::uint32_t id = ids;
    if (spare.empty()) {
      ++ids;
    } else {
      id = spare.back();
      spare.pop_back();
    }
    const Bytes bytes = Bytes(kSizes[random() % std::size(kSizes)] + static_cast<std::int64_t>(random() % 2));
    log.push_back({true, id, bytes, static_cast<std::uint32_t>(random() % 2)});
    live.push_back(id);
  }
  return log;
}

struct Tally {
  int flush_helped = 0, not_monotone = 0;
};

Tally TryEveryPage(const AllocatorOptions& options, std::uint32_t seeds) {
  Tally tally;
  for (std::uint32_t seed = 1; seed <= seeds; ++seed) {
    const std::vector<Request> log = RandomLog(seed);
    const Bytes peak = Replay(log, options, kUnlimited).reserved_peak;
    std::set<Bytes> succeeds;
    for (Bytes capacity; capacity <= peak; capacity += Bytes(kPage)) {
      if (Replay(log, options, capacity).succeeded()) {
        succeeds.insert(capacity);
      }
    }
    EXPECT_EQ(MinimumCapacity(log, options), *succeeds.begin()) << "seed " << seed;
    EXPECT_TRUE(succeeds.contains(peak)) << "seed " << seed;
    tally.flush_helped += *succeeds.begin() < peak;
    const std::int64_t pages_above = (peak - *succeeds.begin()).count() / kPage + 1;
    tally.not_monotone += pages_above != static_cast<std::int64_t>(succeeds.size());
  }
  return tally;
}

TEST(MinimumCapacityProperty, IsTheFirstSuccessAmongAllPages) {
  const Tally tally = TryEveryPage(kTorch, 400);
  EXPECT_GT(tally.flush_helped, 100) << "of 400 logs";
  EXPECT_GT(tally.not_monotone, 0) << "of 400 logs; else a bisection would pass this test too";
}

TEST(MinimumCapacityProperty, IsTheFirstSuccessAmongAllPagesWithExpandableSegmentsToo) {
  const Tally tally = TryEveryPage(kExpandable, 400);
  EXPECT_GT(tally.flush_helped, 100) << "of 400 logs";
}

}  // namespace
}  // namespace tidemark
