// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/allocator.h"

#include <gtest/gtest.h>

#include <limits>
#include <vector>

namespace tidemark::allocator_test {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr Bytes kUnlimited = Bytes(std::numeric_limits<std::int64_t>::max());

std::unique_ptr<Allocator> Torch(Bytes capacity = kUnlimited) {
  return MakeAllocator({.kind = AllocatorKind::torch_caching}, capacity);
}
std::unique_ptr<Allocator> Expandable(Bytes capacity = kUnlimited) {
  return MakeAllocator({.kind = AllocatorKind::torch_caching, .expandable_segments = true}, capacity);
}

Bytes MiB(std::int64_t count) { return Bytes(count * kMiB); }

Allocation Grant(Allocator& allocator, Bytes bytes, std::uint32_t stream = 0) {
  const std::optional<Allocation> given = allocator.Allocate(bytes, stream);
  EXPECT_TRUE(given.has_value()) << bytes.count() << " bytes were refused";
  return given.value_or(Allocation{});
}

TEST(ExactAllocator, ChargesRequestsAsTheyAreAndIsSharpToOneByte) {
  const auto allocator = MakeAllocator({.kind = AllocatorKind::exact}, Bytes(1000));
  const Allocation first = Grant(*allocator, Bytes(1));
  const Allocation second = Grant(*allocator, Bytes(999));
  EXPECT_NE(first.address, second.address);
  EXPECT_EQ(allocator->allocated(), Bytes(1000));
  EXPECT_FALSE(allocator->Allocate(Bytes(1), 0).has_value());
  allocator->Free(first.handle);
  EXPECT_EQ(allocator->allocated(), Bytes(999));
  EXPECT_EQ(allocator->reserved(), Bytes(999));
  EXPECT_EQ(Grant(*allocator, Bytes(1)).handle, first.handle) << "handles are reused";
  EXPECT_EQ(allocator->allocated_peak(), Bytes(1000));
  EXPECT_EQ(allocator->cache_flushes(), 0);
}

TEST(ExactAllocatorDeathTest, FreeingTwiceIsAFaultOfOurs) {
  const auto allocator = MakeAllocator({.kind = AllocatorKind::exact}, kUnlimited);
  const Allocation given = Grant(*allocator, Bytes(5));
  allocator->Free(given.handle);
  EXPECT_EXIT(allocator->Free(given.handle), testing::ExitedWithCode(70), "internal fault");
}

// Worked by hand from the published rules (round to 512; 2 MiB segment up to 1 MiB, 20 MiB below 10 MiB, else rounded
// up to 2 MiB; a large block is split only where more than 1 MiB would remain).
struct Golden {
  std::int64_t request, allocated, reserved;
};

class TorchCachingFirstRequest : public testing::TestWithParam<Golden> {};

TEST_P(TorchCachingFirstRequest, OnAFreshDeviceIsRoundedAndServedFromASegmentOfItsClass) {
  const auto allocator = Torch();
  const Golden golden = GetParam();
  EXPECT_EQ(Grant(*allocator, Bytes(golden.request)).charged, Bytes(golden.allocated));
  EXPECT_EQ(allocator->allocated(), Bytes(golden.allocated));
  EXPECT_EQ(allocator->reserved(), Bytes(golden.reserved));
}

TEST_P(TorchCachingFirstRequest, LeavesTheRestOfItsSegmentForTheNext) {
  const auto allocator = Torch();
  const Golden golden = GetParam();
  Grant(*allocator, Bytes(golden.request));
  const std::int64_t rest = golden.reserved - golden.allocated;
  if (rest > 0) {
    const bool small = golden.allocated <= kMiB;
    const Bytes next = Bytes(small ? std::min(rest, kMiB) : rest);
    Grant(*allocator, next);
    EXPECT_EQ(allocator->reserved(), Bytes(golden.reserved)) << "the tail of " << rest << " bytes was not used";
  }
}

INSTANTIATE_TEST_SUITE_P(
    Goldens, TorchCachingFirstRequest,
    testing::Values(Golden{1, 512, 2097152}, Golden{kMiB, kMiB, 2097152}, Golden{kMiB + 1, 1049088, 20 * kMiB},
                    Golden{2 * kMiB, 2 * kMiB, 20 * kMiB}, Golden{10 * kMiB - 512, 10485248, 20 * kMiB},
                    Golden{10 * kMiB - 511, 10 * kMiB, 10 * kMiB},  // rounds up to the limit of 10 MiB
                    Golden{11 * kMiB, 12 * kMiB, 12 * kMiB},        // 1 MiB remains, which is not more than 1 MiB
                    Golden{19 * kMiB + kMiB / 2, 20 * kMiB, 20 * kMiB}, Golden{100 * kMiB + 1, 104858112, 106954752}),
    [](const auto& row) { return std::to_string(row.param.request) + "_bytes"; });

TEST(TorchCaching, PacksFreesAndReusesPiecesAsWorkedByHand) {
  const auto allocator = Torch();
  std::vector<Allocation> given;
  for (int i = 0; i < 8; ++i) {
    given.push_back(Grant(*allocator, MiB(3)));  // six in the first 20 MiB, two in the second
  }
  EXPECT_EQ(allocator->allocated(), MiB(24));
  EXPECT_EQ(allocator->reserved(), MiB(40));
  for (std::size_t i = 1; i < 8; i += 2) {
    allocator->Free(given[i].handle);
  }
  EXPECT_EQ(allocator->allocated(), MiB(12));
  EXPECT_EQ(allocator->reserved(), MiB(40));
  for (int i = 0; i < 4; ++i) {
    Grant(*allocator, MiB(5));
  }
  EXPECT_EQ(allocator->allocated(), MiB(32));
  EXPECT_EQ(allocator->reserved(), MiB(40));
  // Free pieces are 2 + 3 + 3 MiB: they take exactly these, and then not one more block.
  Grant(*allocator, MiB(3));
  Grant(*allocator, MiB(3));
  Grant(*allocator, MiB(2));
  EXPECT_EQ(allocator->allocated(), MiB(40));
  EXPECT_EQ(allocator->reserved(), MiB(40));
  Grant(*allocator, MiB(2));
  EXPECT_EQ(allocator->reserved(), MiB(60));
}

TEST(TorchCaching, GrantsNothingForNothing) {
  const auto allocator = Torch(Bytes(0));
  const Allocation given = Grant(*allocator, Bytes(0));
  EXPECT_EQ(given.charged, Bytes(0));
  allocator->Free(given.handle);
  EXPECT_EQ(allocator->reserved_peak(), Bytes(0));
}

TEST(TorchCaching, TakesTheSmallestBlockThatFits) {
  const auto allocator = Torch();
  const Allocation four = Grant(*allocator, MiB(4));
  Grant(*allocator, MiB(2));
  const Allocation three = Grant(*allocator, MiB(3));
  Grant(*allocator, MiB(2));  // 9 MiB remain behind it
  allocator->Free(four.handle);
  allocator->Free(three.handle);
  EXPECT_EQ(Grant(*allocator, MiB(3)).address, three.address);
}

TEST(TorchCaching, TakesTheLowestAddressAmongEqualBlocks) {
  const auto allocator = Torch();
  const Allocation low = Grant(*allocator, MiB(3));
  Grant(*allocator, MiB(2));
  const Allocation high = Grant(*allocator, MiB(3));
  Grant(*allocator, MiB(2));
  allocator->Free(high.handle);
  allocator->Free(low.handle);
  EXPECT_EQ(Grant(*allocator, MiB(3)).address, low.address);
}

TEST(TorchCaching, GivesNoBlockToAnotherStream) {
  const auto allocator = Torch();
  allocator->Free(Grant(*allocator, MiB(30), 0).handle);
  Grant(*allocator, MiB(30), 1);
  EXPECT_EQ(allocator->reserved(), MiB(60));
  Grant(*allocator, MiB(30), 0);
  EXPECT_EQ(allocator->reserved(), MiB(60));
}

TEST(TorchCaching, KeepsSmallAndLargeBlocksApart) {
  const auto allocator = Torch();
  allocator->Free(Grant(*allocator, MiB(2)).handle);  // 20 MiB cached, large
  Grant(*allocator, Bytes(512));
  EXPECT_EQ(allocator->reserved(), MiB(22));
}

TEST(TorchCaching, ChargesTheWholeBlockWhereItDoesNotSplit) {
  const auto allocator = Torch();
  allocator->Free(Grant(*allocator, MiB(12)).handle);
  EXPECT_EQ(Grant(*allocator, MiB(11)).charged, MiB(12));  // 1 MiB would remain: not more than 1 MiB
  EXPECT_EQ(allocator->allocated(), MiB(12));
}

TEST(TorchCaching, SplitsALargeBlockWhereOneRoundingMoreThanAMebibyteRemains) {
  const auto allocator = Torch();
  allocator->Free(Grant(*allocator, MiB(12)).handle);
  EXPECT_EQ(Grant(*allocator, MiB(11) - Bytes(512)).charged, MiB(11) - Bytes(512));
}

TEST(TorchCaching, SplitsASmallBlockDownToItsLast512Bytes) {
  const auto allocator = Torch();
  Grant(*allocator, MiB(1));
  Grant(*allocator, MiB(1) - Bytes(512));
  Grant(*allocator, Bytes(512));
  EXPECT_EQ(allocator->allocated(), MiB(2));
  EXPECT_EQ(allocator->reserved(), MiB(2));
}

TEST(TorchCaching, MergesAFreedBlockWithBothNeighbours) {
  const auto allocator = Torch();
  const Allocation left = Grant(*allocator, MiB(4));
  const Allocation middle = Grant(*allocator, MiB(4));
  const Allocation right = Grant(*allocator, MiB(4));  // 8 MiB remain behind it
  allocator->Free(left.handle);
  allocator->Free(right.handle);
  allocator->Free(middle.handle);
  EXPECT_EQ(Grant(*allocator, MiB(20)).address, left.address);  // only the whole segment is large enough
  EXPECT_EQ(allocator->reserved(), MiB(20));
}

TEST(TorchCaching, FlushesWhatIsCachedBeforeItGivesUp) {
  const auto allocator = Torch(MiB(40));
  allocator->Free(Grant(*allocator, MiB(30)).handle);
  EXPECT_EQ(allocator->cache_flushes(), 0);
  Grant(*allocator, MiB(40));
  EXPECT_EQ(allocator->cache_flushes(), 1);
  EXPECT_EQ(allocator->reserved(), MiB(40));
  EXPECT_EQ(allocator->reserved_peak(), MiB(40));
}

TEST(TorchCaching, FlushesOtherStreamsAndSmallBlocksToo) {
  const auto allocator = Torch(MiB(40));
  allocator->Free(Grant(*allocator, Bytes(512), 1).handle);
  allocator->Free(Grant(*allocator, MiB(20), 2).handle);
  Grant(*allocator, MiB(40), 0);
  EXPECT_EQ(allocator->reserved(), MiB(40));
}

TEST(TorchCaching, CannotFlushASegmentThatASingleTensorPins) {
  const auto allocator = Torch(MiB(40));
  const Allocation first = Grant(*allocator, MiB(2));
  const Allocation pin = Grant(*allocator, MiB(2));
  allocator->Free(first.handle);
  EXPECT_FALSE(allocator->Allocate(MiB(22), 0).has_value());
  EXPECT_EQ(allocator->cache_flushes(), 1) << "the vain flush counts";
  EXPECT_EQ(allocator->reserved(), MiB(20));
  allocator->Free(pin.handle);
  Grant(*allocator, MiB(22));
}

TEST(TorchCaching, RefusesOnePageBelowWhatASegmentNeeds) {
  EXPECT_TRUE(Torch(MiB(20))->Allocate(MiB(2), 0).has_value());
  EXPECT_FALSE(Torch(MiB(20) - Bytes(1))->Allocate(MiB(2), 0).has_value());
}

TEST(TorchCachingDeathTest, FreeingTwiceIsAFaultOfOurs) {
  const auto allocator = Torch();
  const Allocation given = Grant(*allocator, MiB(5));
  allocator->Free(given.handle);
  EXPECT_EXIT(allocator->Free(given.handle), testing::ExitedWithCode(70), "internal fault");
}

TEST(ExpandableSegments, MapPagesOf2MiBForSmallAnd20MiBForLargeBlocks) {
  const auto allocator = Expandable();
  EXPECT_EQ(Grant(*allocator, Bytes(1)).charged, Bytes(512));
  EXPECT_EQ(allocator->reserved(), MiB(2));
  EXPECT_EQ(Grant(*allocator, Bytes(kMiB + 1)).charged, Bytes(1049088));
  EXPECT_EQ(allocator->reserved(), MiB(22));
}

TEST(ExpandableSegments, GrowInPlaceInsteadOfOpeningAnotherSegment) {
  const auto allocator = Expandable();
  const Allocation first = Grant(*allocator, MiB(30));
  EXPECT_EQ(allocator->reserved(), MiB(40));
  // 10 MiB are free behind it and 5 MiB are missing: one page more. Fixed segments would come to 30 + 16 MiB.
  const Allocation second = Grant(*allocator, MiB(15));
  EXPECT_EQ(second.address, first.address + static_cast<std::uint64_t>(30 * kMiB));
  EXPECT_EQ(allocator->reserved(), MiB(60));
  Grant(*allocator, MiB(15));
  EXPECT_EQ(allocator->reserved(), MiB(60));
}

TEST(ExpandableSegments, SplitDownTo512BytesInThePoolOfLargeBlocksToo) {
  const auto allocator = Expandable();
  EXPECT_EQ(Grant(*allocator, MiB(20) - Bytes(512)).charged, MiB(20) - Bytes(512));
}

TEST(ExpandableSegments, PreferAHoleOverASmallerTailThatCanGrow) {
  const auto allocator = Expandable();
  const Allocation hole = Grant(*allocator, MiB(5));
  Grant(*allocator, MiB(12));  // 3 MiB of the page remain, with unmapped room behind them
  allocator->Free(hole.handle);
  EXPECT_EQ(Grant(*allocator, MiB(2)).address, hole.address);
}

TEST(ExpandableSegments, UnmapOnlyWholePagesInsideFreeBlocks) {
  const auto allocator = Expandable(MiB(60));
  const Allocation front = Grant(*allocator, MiB(30));
  Grant(*allocator, MiB(5));  // at 30 MiB
  allocator->Free(front.handle);
  EXPECT_EQ(allocator->reserved(), MiB(40));
  // 50 MiB do not fit beside the 40. Of the free first 30 MiB one whole page can go; then 40 MiB at most are left.
  EXPECT_FALSE(allocator->Allocate(MiB(50), 0).has_value());
  EXPECT_EQ(allocator->cache_flushes(), 1);
  EXPECT_EQ(allocator->reserved(), MiB(20));
}

TEST(ExpandableSegments, MapAnUnmappedHoleAgain) {
  const auto allocator = Expandable(MiB(60));
  const Allocation front = Grant(*allocator, MiB(40));
  Grant(*allocator, MiB(5));
  allocator->Free(front.handle);
  EXPECT_FALSE(allocator->Allocate(MiB(60), 0).has_value());
  EXPECT_EQ(allocator->reserved(), MiB(20));
  // The lowest place for 25 MiB is the hole of two pages that the flush left.
  EXPECT_EQ(Grant(*allocator, MiB(25)).address, front.address);
  EXPECT_EQ(allocator->reserved(), MiB(60));
}

TEST(ExpandableSegments, GiveEverythingBackWhenNothingIsLive) {
  const auto allocator = Expandable(MiB(64));
  for (int round = 0; round < 3; ++round) {
    const Allocation large = Grant(*allocator, MiB(33), 1);
    const Allocation small = Grant(*allocator, Bytes(700), 0);
    allocator->Free(large.handle);
    allocator->Free(small.handle);
    EXPECT_EQ(allocator->reserved(), MiB(42));
    EXPECT_FALSE(allocator->Allocate(MiB(65), 0).has_value());
    EXPECT_EQ(allocator->reserved(), Bytes(0));
  }
}

TEST(MakeAllocator, MakesTheKindThatTheJobNames) {
  EXPECT_EQ(Grant(*MakeAllocator({.kind = AllocatorKind::exact}, kUnlimited), Bytes(1)).charged, Bytes(1));
  EXPECT_EQ(Grant(*MakeAllocator({.kind = AllocatorKind::torch_caching}, kUnlimited), Bytes(1)).charged, Bytes(512));
  const auto expandable =
      MakeAllocator({.kind = AllocatorKind::torch_caching, .expandable_segments = true}, kUnlimited);
  Grant(*expandable, MiB(11));
  EXPECT_EQ(expandable->reserved(), MiB(20)) << "one page, not a segment of 12 MiB";
}

}  // namespace
}  // namespace tidemark::allocator_test
