// SPDX-License-Identifier: Apache-2.0
// The knobs of PyTorch's caching allocator. Each vector is worked by hand from c10/cuda/CUDACachingAllocator.cpp and
// c10/core/AllocatorConfig.cpp, the reasons beside it.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "sim/memory/allocator.h"
#include "sim/memory/capacity.h"
#include "sim/memory/roundup.h"

namespace tidemark::torch_caching_knobs_test {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr Bytes kUnlimited = Bytes(std::numeric_limits<std::int64_t>::max());

Bytes MiB(std::int64_t count) { return Bytes(count * kMiB); }

Allocation Grant(Allocator& allocator, Bytes bytes, std::uint32_t stream = 0) {
  const std::optional<Allocation> given = allocator.Allocate(bytes, stream);
  EXPECT_TRUE(given.has_value()) << bytes.count() << " bytes were refused";
  return given.value_or(Allocation{});
}

AllocatorOptions MaxSplit(Bytes max_split) { return {.max_split = max_split}; }

TEST(Roundup, GoesToTheNextOfEqualStepsBetweenPowersOfTwo) {
  EXPECT_EQ(RoundUpToDivision(1200, 4), 1280);  // the documentation's example: 1024, 1280, 1536, 1792
  EXPECT_EQ(RoundUpToDivision(1024, 4), 1024);
  EXPECT_EQ(RoundUpToDivision(1025, 4), 1280);
  EXPECT_EQ(RoundUpToDivision(1793, 4), 2048);
  EXPECT_EQ(RoundUpToDivision(5, 16), 8) << "no room for 16 steps: the next power of two";
  EXPECT_EQ(RoundUpToDivision(1300, 1), 1300);
}

TEST(Roundup, AppliesAbove512BytesForEachStep) {
  const std::vector<RoundupDivisions> four = {{Bytes(0), 4}};
  EXPECT_EQ(RoundedRequest(four, Bytes(1200)), Bytes(1536));  // not above 2,048: the next 512
  EXPECT_EQ(RoundedRequest(four, Bytes(2048)), Bytes(2048));
  EXPECT_EQ(RoundedRequest(four, Bytes(2049)), Bytes(2560));  // steps of 512 from 2,048 on
  EXPECT_EQ(RoundedRequest(four, MiB(9)), MiB(10));           // steps of 2 MiB from 8 MiB on
  EXPECT_EQ(RoundedRequest(four, MiB(33)), MiB(40));          // steps of 8 MiB from 32 MiB on
  EXPECT_EQ(RoundedRequest({}, MiB(33)), MiB(33));
  EXPECT_EQ(RoundedRequest(std::vector<RoundupDivisions>{{Bytes(0), 1}}, MiB(33)), MiB(33));
}

TEST(Roundup, HasStepsBySize) {
  const std::vector<RoundupDivisions> steps = {{Bytes(0), 8}, {MiB(256), 16}, {MiB(512), 0}, {MiB(2048), 2}};
  EXPECT_EQ(RoundedRequest(steps, MiB(129)), MiB(144));    // 128 / 8
  EXPECT_EQ(RoundedRequest(steps, MiB(257)), MiB(272));    // 256 / 16
  EXPECT_EQ(RoundedRequest(steps, MiB(513)), MiB(513));    // none
  EXPECT_EQ(RoundedRequest(steps, MiB(2049)), MiB(3072));  // 2,048 / 2
}

TEST(TorchRoundup, DecidesSegmentAndPoolByTheRoundedSize) {
  const auto allocator = MakeAllocator({.roundup_power2_divisions = {{Bytes(0), 2}}}, kUnlimited);
  // 900 KiB lie between 768 KiB and 1 MiB, the steps from 512 KiB on: 1 MiB, still small.
  EXPECT_EQ(Grant(*allocator, Bytes(900 << 10)).charged, MiB(1));
  EXPECT_EQ(allocator->reserved(), MiB(2));
  // 9 MiB become 12, and 10 MiB and more have a segment of their own.
  EXPECT_EQ(Grant(*allocator, MiB(9)).charged, MiB(12));
  EXPECT_EQ(allocator->reserved(), MiB(14));
}

TEST(TorchLargeSegment, IsWhatRequestsBelow10MiBShare) {
  const auto allocator = MakeAllocator({.large_segment = MiB(64)}, kUnlimited);
  Grant(*allocator, MiB(2));
  EXPECT_EQ(allocator->reserved(), MiB(64));
  for (int i = 0; i < 31; ++i) {
    Grant(*allocator, MiB(2));
  }
  EXPECT_EQ(allocator->reserved(), MiB(64));
  Grant(*allocator, MiB(10));
  EXPECT_EQ(allocator->reserved(), MiB(74)) << "from 10 MiB on a segment has the request's size";
}

TEST(TorchLargeSegment, IsThePageOfLargeExpandableSegments) {
  const auto allocator = MakeAllocator({.expandable_segments = true, .large_segment = MiB(64)}, kUnlimited);
  Grant(*allocator, MiB(65));
  EXPECT_EQ(allocator->reserved(), MiB(128));
}

TEST(TorchMaxSplit, LeavesOversizeBlocksWhole) {
  // Without a limit the 100 MiB are cut: 40 + 60. With max_split 50 MiB the cached block is oversize, and the request
  // is not: it gets a segment of its own.
  const auto split = MakeAllocator({}, kUnlimited);
  split->Free(Grant(*split, MiB(100)).handle);
  Grant(*split, MiB(40));
  EXPECT_EQ(split->reserved(), MiB(100));
  const auto whole = MakeAllocator(MaxSplit(MiB(50)), kUnlimited);
  whole->Free(Grant(*whole, MiB(100)).handle);
  Grant(*whole, MiB(40));
  EXPECT_EQ(whole->reserved(), MiB(140));
}

TEST(TorchMaxSplit, GivesAnOversizeBlockOnlyWhereLessThanTheRoundingIsLost) {
  const auto allocator = MakeAllocator(MaxSplit(MiB(50)), kUnlimited);
  allocator->Free(Grant(*allocator, MiB(100)).handle);
  // 100 - 80 = 20 MiB is not less than max_non_split_rounding's 20 MiB: a segment of 80 MiB.
  const Allocation eighty = Grant(*allocator, MiB(80));
  EXPECT_EQ(eighty.charged, MiB(80));
  EXPECT_EQ(allocator->reserved(), MiB(180));
  // 512 bytes more, and the block of 100 MiB serves, all of it.
  EXPECT_EQ(Grant(*allocator, MiB(80) + Bytes(512)).charged, MiB(100));
  EXPECT_EQ(allocator->reserved(), MiB(180));
}

TEST(TorchMaxSplit, LosesMoreWithALargerRounding) {
  const auto allocator = MakeAllocator({.max_split = MiB(50), .max_non_split_rounding = MiB(40)}, kUnlimited);
  allocator->Free(Grant(*allocator, MiB(100)).handle);
  EXPECT_EQ(Grant(*allocator, MiB(61)).charged, MiB(100));
  EXPECT_EQ(allocator->reserved(), MiB(100));
}

TEST(TorchMaxSplit, EndsTheSearchAtTheFirstCandidate) {
  // Free: 60 MiB (oversize) only. A request of 45 MiB finds it first, rejects it, and looks no further.
  const auto allocator = MakeAllocator(MaxSplit(MiB(50)), kUnlimited);
  const Allocation sixty = Grant(*allocator, MiB(60));
  const Allocation forty_eight = Grant(*allocator, MiB(48));
  allocator->Free(sixty.handle);
  allocator->Free(forty_eight.handle);
  EXPECT_EQ(Grant(*allocator, MiB(47) + Bytes(512)).address, forty_eight.address);  // best fit comes first
  Grant(*allocator, MiB(45));
  EXPECT_EQ(allocator->reserved(), MiB(108 + 46));
}

TEST(TorchMaxSplit, SplitsBelowTheLimitAsEver) {
  const auto allocator = MakeAllocator(MaxSplit(MiB(50)), kUnlimited);
  allocator->Free(Grant(*allocator, MiB(48)).handle);
  EXPECT_EQ(Grant(*allocator, MiB(20)).charged, MiB(20));
  EXPECT_EQ(Grant(*allocator, MiB(28)).charged, MiB(28));
  EXPECT_EQ(allocator->reserved(), MiB(48));
}

TEST(TorchMaxSplit, FreesOneOversizeBlockBeforeItFlushesEverything) {
  const auto allocator = MakeAllocator(MaxSplit(MiB(50)), MiB(200));
  const Allocation large = Grant(*allocator, MiB(100));
  const Allocation small = Grant(*allocator, MiB(30));
  allocator->Free(large.handle);
  allocator->Free(small.handle);
  // 110 MiB do not fit beside 130. No cached block is of 110 MiB or more; of the oversize ones from the largest down
  // the 100 MiB are not enough either (100 < 110), though they are given back. Then everything goes.
  Grant(*allocator, MiB(110));
  EXPECT_EQ(allocator->cache_flushes(), 1);
  EXPECT_EQ(allocator->reserved(), MiB(110));
}

TEST(TorchMaxSplit, KeepsTheRestOfTheCacheWhereOneOversizeBlockIsEnough) {
  const auto allocator = MakeAllocator(MaxSplit(MiB(50)), MiB(200));
  const Allocation large = Grant(*allocator, MiB(100));
  const Allocation small = Grant(*allocator, MiB(30));
  allocator->Free(large.handle);
  allocator->Free(small.handle);
  // 72 MiB: the 100 would lose 28 of them, and beside 130 they do not fit. One block of at least 72 MiB is given back.
  Grant(*allocator, MiB(72));
  EXPECT_EQ(allocator->cache_flushes(), 0);
  EXPECT_EQ(allocator->reserved(), MiB(30 + 72));
}

TEST(TorchMaxSplit, FreesSeveralOversizeBlocksFromTheLargestDown) {
  const auto allocator = MakeAllocator(MaxSplit(MiB(50)), MiB(260));
  std::vector<Allocation> given;
  for (const std::int64_t size : {60, 70, 80}) {
    given.push_back(Grant(*allocator, MiB(size)));
  }
  for (const Allocation& allocation : given) {
    allocator->Free(allocation.handle);
  }
  // 150 MiB do not fit beside 210. None is as large; 80 + 70 are enough, and the 60 stay.
  Grant(*allocator, MiB(150));
  EXPECT_EQ(allocator->cache_flushes(), 0);
  EXPECT_EQ(allocator->reserved(), MiB(60 + 150));
}

TEST(TorchMaxSplit, FreesNoOversizeBlockOfAnotherStream) {
  const auto allocator = MakeAllocator(MaxSplit(MiB(50)), MiB(150));
  allocator->Free(Grant(*allocator, MiB(100), 1).handle);
  Grant(*allocator, MiB(60), 0);
  EXPECT_EQ(allocator->cache_flushes(), 1) << "only the flush reaches it";
  EXPECT_EQ(allocator->reserved(), MiB(60));
}

TEST(TorchMemoryFraction, RefusesWithRoomLeftOnTheDevice) {
  const auto allocator = MakeAllocator({.memory_fraction = 0.5}, MiB(100));
  Grant(*allocator, MiB(30));
  EXPECT_FALSE(allocator->Allocate(MiB(22), 0).has_value());
  EXPECT_EQ(allocator->cache_flushes(), 1);
  EXPECT_EQ(allocator->Statistics().ooms, 1);
  Grant(*allocator, MiB(20));
  EXPECT_EQ(allocator->reserved(), MiB(50));
}

TEST(TorchMemoryFraction, OfExpandableSegmentsIsCheckedWithTheSegmentNotThePages) {
  // 12 MiB would be a segment of 12: within 50. Its page of 20 MiB comes beside 40, and the original maps it all the
  // same: 60 MiB of the 50 that are allowed.
  const auto allocator = MakeAllocator({.expandable_segments = true, .memory_fraction = 0.5}, MiB(100));
  Grant(*allocator, MiB(38));
  EXPECT_EQ(allocator->reserved(), MiB(40));
  EXPECT_FALSE(allocator->Allocate(MiB(11), 0).has_value());  // a segment of 12: 52
  EXPECT_TRUE(allocator->Allocate(MiB(10), 0).has_value());   // a segment of 10: 50
  EXPECT_EQ(allocator->reserved(), MiB(60));
}

TEST(TorchMemoryFraction, MakesTheMinimumCapacitySharpToTheByte) {
  const std::vector<Request> log = {{true, 0, MiB(30), 0}, {true, 1, MiB(20), 0}};
  const AllocatorOptions options{.memory_fraction = 0.75};
  // The smallest c with floor(0.75 c) >= 50 MiB = 52,428,800: 69,905,067 (0.75 of it is 52,428,800.25).
  EXPECT_EQ(MinimumCapacity(log, options), Bytes(69905067));
  EXPECT_TRUE(Replay(log, options, Bytes(69905067)).succeeded());
  EXPECT_FALSE(Replay(log, options, Bytes(69905066)).succeeded());
}

/// 100 MiB allowed, collected above 60.
AllocatorOptions Collecting() { return {.garbage_collection_threshold = 0.6, .memory_fraction = 0.5}; }

TEST(TorchGarbageCollection, GivesBackTheOldestUntilBelowTheThreshold) {
  const auto allocator = MakeAllocator(Collecting(), MiB(200));
  const Allocation first = Grant(*allocator, MiB(30));   // search 1
  const Allocation second = Grant(*allocator, MiB(20));  // search 2
  const Allocation third = Grant(*allocator, MiB(16));   // search 3
  allocator->Free(first.handle);                         // cached at 3
  Grant(*allocator, MiB(40));                            // search 4: 66 > 60, target 6: the 30 MiB go; 36 + 40 remain
  EXPECT_EQ(allocator->reserved(), MiB(20 + 16 + 40));
  allocator->Free(second.handle);  // cached at 4
  Grant(*allocator, MiB(18));      // search 5: the 20 MiB serve, 18 + 2
  EXPECT_EQ(allocator->reserved(), MiB(76));
  allocator->Free(third.handle);  // cached at 5
  // Search 6: 76 > 60. Only the 16 MiB are whole: 60 remain, and 22 are added.
  Grant(*allocator, MiB(22));
  EXPECT_EQ(allocator->reserved(), MiB(82));
  EXPECT_EQ(allocator->cache_flushes(), 0);
}

TEST(TorchGarbageCollection, KeepsBlocksThatAreYoungerThanTheMean) {
  const auto allocator = MakeAllocator(Collecting(), MiB(200));
  const Allocation old = Grant(*allocator, MiB(24));    // search 1
  const Allocation young = Grant(*allocator, MiB(24));  // search 2
  allocator->Free(old.handle);                          // cached at 2
  Grant(*allocator, MiB(10), 1);                        // search 3: 48 reserved, 58 after it
  allocator->Free(young.handle);                        // cached at 3
  Grant(*allocator, MiB(12), 1);                        // search 4: 58 are not above 60
  EXPECT_EQ(allocator->reserved(), MiB(70));
  // Search 5: ages 3 and 2, mean 2.5. The older 24 MiB go, and 46 are not above 60.
  Grant(*allocator, MiB(14), 1);
  EXPECT_EQ(allocator->reserved(), MiB(24 + 10 + 12 + 14));
}

TEST(TorchGarbageCollection, GivesBackAllOfOneAgeThoughFewerWouldDo) {
  const auto allocator = MakeAllocator(Collecting(), MiB(200));
  const Allocation first = Grant(*allocator, MiB(24));
  const Allocation second = Grant(*allocator, MiB(24));
  allocator->Free(first.handle);
  allocator->Free(second.handle);
  Grant(*allocator, MiB(14), 1);
  EXPECT_EQ(allocator->reserved(), MiB(62));
  Grant(*allocator, MiB(16), 1);
  EXPECT_EQ(allocator->reserved(), MiB(14 + 16));
}

TEST(TorchGarbageCollection, IsDoneForASmallMissToo) {
  const auto allocator = MakeAllocator(Collecting(), MiB(200));
  allocator->Free(Grant(*allocator, MiB(64)).handle);
  Grant(*allocator, Bytes(512));
  EXPECT_EQ(allocator->reserved(), MiB(2));
}

TEST(TorchGarbageCollection, DoesNothingWithoutAMemoryFraction) {
  const auto allocator = MakeAllocator({.garbage_collection_threshold = 0.1}, MiB(200));
  allocator->Free(Grant(*allocator, MiB(30)).handle);
  Grant(*allocator, MiB(40));
  EXPECT_EQ(allocator->reserved(), MiB(70));
}

TEST(TorchRecordStream, HoldsMemoryBackUntilItsUseEnds) {
  const auto allocator = MakeAllocator({}, kUnlimited);
  const Allocation first = Grant(*allocator, MiB(30));
  const std::uint64_t ticket = allocator->FreeInUse(first.handle);
  EXPECT_EQ(allocator->allocated(), Bytes(0)) << "free at once in the books";
  EXPECT_EQ(allocator->Statistics().active_bytes, MiB(30));
  EXPECT_EQ(allocator->Statistics().active, 1);
  EXPECT_EQ(allocator->Statistics().allocations, 0);
  const Allocation second = Grant(*allocator, MiB(30));
  EXPECT_NE(second.address, first.address);
  allocator->UseEnds(ticket);
  EXPECT_EQ(allocator->Statistics().active_bytes, MiB(60)) << "the next Allocate finds it";
  EXPECT_EQ(Grant(*allocator, MiB(30)).address, first.address);
  EXPECT_EQ(allocator->reserved(), MiB(60));
}

TEST(TorchRecordStream, IsWaitedForRatherThanRunOut) {
  const auto allocator = MakeAllocator({}, MiB(40));
  const Allocation first = Grant(*allocator, MiB(30));
  const std::uint64_t ticket = allocator->FreeInUse(first.handle);
  const Allocation second = Grant(*allocator, MiB(32));
  EXPECT_EQ(allocator->cache_flushes(), 1);
  EXPECT_EQ(allocator->reserved(), MiB(32));
  allocator->UseEnds(ticket);  // late, and of no consequence, even though the handle lives again
  EXPECT_FALSE(allocator->Allocate(MiB(20), 0).has_value());
  EXPECT_EQ(allocator->allocated(), MiB(32));
  allocator->Free(second.handle);
}

TEST(TorchRecordStream, KeepsNeighboursApartUntilItsUseEnds) {
  const auto allocator = MakeAllocator({}, kUnlimited);
  const Allocation left = Grant(*allocator, MiB(5));
  const Allocation middle = Grant(*allocator, MiB(5));
  allocator->Free(left.handle);
  const std::uint64_t ticket = allocator->FreeInUse(middle.handle);
  Grant(*allocator, MiB(8));  // from the 10 MiB behind, not from 5 + 5
  EXPECT_EQ(allocator->reserved(), MiB(20));
  allocator->UseEnds(ticket);
  EXPECT_EQ(Grant(*allocator, MiB(9)).address, left.address);
}

TEST(TorchStatistics, AreThoseOfTheGoldenSequence) {
  // 8 x 3 MiB in two segments of 20 MiB (six and two), every second one freed: pieces of 3, 3, 5 (3 + the 2 behind)
  // in the first, 17 (3 + the 14 behind) in the second.
  const auto allocator = MakeAllocator({}, kUnlimited);
  std::vector<Allocation> given;
  for (int i = 0; i < 8; ++i) {
    given.push_back(Grant(*allocator, MiB(3) - Bytes(100)));
  }
  for (std::size_t i = 1; i < 8; i += 2) {
    allocator->Free(given[i].handle);
  }
  const AllocatorStatistics all = allocator->Statistics();
  EXPECT_EQ(all.allocations, 4);
  EXPECT_EQ(all.active, 4);
  EXPECT_EQ(all.segments, 2);
  EXPECT_EQ(all.inactive_split, 4);
  EXPECT_EQ(all.allocated, MiB(12));
  EXPECT_EQ(all.active_bytes, MiB(12));
  EXPECT_EQ(all.requested, MiB(12) - Bytes(400));
  EXPECT_EQ(all.inactive_split_bytes, MiB(28));
  EXPECT_EQ(all.reserved, MiB(40));
  EXPECT_EQ(all.device_allocs, 2);
  EXPECT_EQ(all.device_frees, 0);
}

TEST(TorchStatistics, CountNoWholeSegmentAndNoExpandableOneAsSplit) {
  const auto allocator = MakeAllocator({}, kUnlimited);
  allocator->Free(Grant(*allocator, MiB(3)).handle);
  EXPECT_EQ(allocator->Statistics().inactive_split, 0);
  const auto expandable = MakeAllocator({.expandable_segments = true}, kUnlimited);
  Grant(*expandable, MiB(3));
  EXPECT_EQ(expandable->Statistics().inactive_split_bytes, Bytes(0));
  EXPECT_EQ(expandable->Statistics().segments, 0);
  EXPECT_EQ(expandable->Statistics().device_allocs, 1);
}

TEST(TorchStatistics, CountRetriesAndRefusals) {
  const auto allocator = MakeAllocator({}, MiB(40));
  allocator->Free(Grant(*allocator, MiB(30)).handle);
  Grant(*allocator, MiB(32));
  EXPECT_FALSE(allocator->Allocate(MiB(12), 0).has_value());
  const AllocatorStatistics all = allocator->Statistics();
  EXPECT_EQ(all.alloc_retries, 2);
  EXPECT_EQ(all.syncs, 2);
  EXPECT_EQ(all.ooms, 1);
  EXPECT_EQ(all.device_allocs, 2);
  EXPECT_EQ(all.device_frees, 1);
}

}  // namespace
}  // namespace tidemark::torch_caching_knobs_test
