// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/trace_replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "tests/traces/trace_script.h"

namespace tidemark::trace_replay_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t kMiB = 1 << 20;
constexpr Bytes kUnlimited = Bytes(std::numeric_limits<std::int64_t>::max());
const AllocatorOptions kTorch{.kind = AllocatorKind::torch_caching};
const AllocatorOptions kExact{.kind = AllocatorKind::exact};

/// Eight tensors of 3 MiB, every second of which goes, then four of 5 MiB: PyTorch keeps 40 MiB reserved throughout.
std::vector<Happening> Holes() {
  std::vector<Happening> script;
  for (std::int32_t i = 0; i < 8; ++i) {
    script.push_back(Allocated("small", 3 * kMiB, i));
  }
  for (std::int32_t i = 1; i < 8; i += 2) {
    script.push_back(Freed("small", i));
  }
  for (std::int32_t i = 0; i < 4; ++i) {
    script.push_back(Allocated("large", 5 * kMiB, i));
  }
  return script;
}

TEST(TraceReplay, HasTheTotalsOfTheOtherAllocatorAfterEveryEvent) {
  const TraceReplay replay = ReplayTrace(Play(Holes()), kTorch, kUnlimited);
  ASSERT_EQ(replay.trace.memory.size(), 16U);
  EXPECT_EQ(replay.trace.memory[7].allocator_bytes, Bytes(24 * kMiB));
  EXPECT_EQ(replay.trace.memory[7].reserved_bytes, Bytes(40 * kMiB));
  EXPECT_EQ(replay.trace.memory[11].allocator_bytes, Bytes(12 * kMiB));
  EXPECT_EQ(replay.trace.memory[15].allocator_bytes, Bytes(32 * kMiB));
  EXPECT_EQ(replay.trace.memory[15].reserved_bytes, Bytes(40 * kMiB));
  EXPECT_EQ(replay.reserved_peak, Bytes(40 * kMiB));
  EXPECT_EQ(replay.allocator_peak, Bytes(32 * kMiB));
  EXPECT_EQ(replay.refused, std::nullopt);
}

TEST(TraceReplay, NothingIsFragmentedWhereEveryTensorIsAPieceOfItsOwn) {
  const TraceReplay replay = ReplayTrace(Play(Holes()), kExact, kUnlimited);
  EXPECT_EQ(replay.reserved_peak, Bytes(32 * kMiB));
  EXPECT_EQ(replay.fragmentation(), 0);
  EXPECT_THAT(replay.pinned, IsEmpty());
}

TEST(TraceReplay, TellsWhoHoldsASegmentThatIsMostlyFree) {
  // Segments of 20 MiB: the first has 2 x 8 and 4 free, the second 8 and 12 free when it comes; all is well until the
  // large ones go, and one of 2 MiB is left in each.
  const Trace trace = Play({Allocated("a", 8 * kMiB), Allocated("keeper", 2 * kMiB), Allocated("b", 9 * kMiB),
                            Freed("a"), Freed("b"), Allocated("c", 30 * kMiB)});
  const TraceReplay replay = ReplayTrace(trace, kTorch, kUnlimited);
  // One segment of 20 MiB: 8 + 2 + 9, and 1 MiB too small to split off; then one of 30 MiB for "c".
  EXPECT_EQ(replay.reserved_peak, Bytes(50 * kMiB));
  EXPECT_EQ(replay.at, 5U);
  ASSERT_EQ(replay.pinned.size(), 1U);
  EXPECT_EQ(replay.pinned[0].bytes, Bytes(20 * kMiB));
  EXPECT_EQ(replay.pinned[0].free, Bytes(18 * kMiB));
  EXPECT_THAT(replay.pinned[0].holders, ElementsAre(1));  // "keeper"
  EXPECT_EQ(replay.releasable, Bytes(0));
  EXPECT_DOUBLE_EQ(replay.fragmentation(), 18.0 / 50.0);
}

TEST(TraceReplay, OfInstantsWithAsMuchReservedTheFullestIsLookedAt) {
  const Trace trace =
      Play({Allocated("a", 2 * kMiB), Allocated("b", 8 * kMiB), Allocated("c", 8 * kMiB), Freed("c"), Freed("b")});
  const TraceReplay replay = ReplayTrace(trace, kTorch, kUnlimited);
  EXPECT_EQ(replay.reserved_peak, Bytes(20 * kMiB));  // from the first event on
  EXPECT_EQ(replay.at, 2U);
  EXPECT_DOUBLE_EQ(replay.fragmentation(), 2.0 / 20.0);
}

TEST(TraceReplay, StreamsHavePoolsOfTheirOwn) {
  Trace trace = Play({Allocated("a", 8 * kMiB), Freed("a"), Allocated("b", 8 * kMiB)});
  trace.streams = {{"compute", "compute"}, {"copy", "copy"}};
  for (MemoryEvent& event : trace.memory) {
    event.stream = 0;
  }
  EXPECT_EQ(ReplayTrace(trace, kTorch, kUnlimited).reserved_peak, Bytes(20 * kMiB));
  trace.memory.back().stream = 1;
  EXPECT_EQ(ReplayTrace(trace, kTorch, kUnlimited).reserved_peak, Bytes(40 * kMiB));
}

TEST(TraceReplay, WhatOtherStreamsStillUseIsNotHandedOutBeforeItsTime) {
  // Every happening takes 10 ns: "b" is asked for at 30 ns, "c" at 50 ns.
  Trace trace =
      Play({Allocated("a", 8 * kMiB), Freed("a"), Allocated("b", 19 * kMiB), Freed("b"), Allocated("c", 19 * kMiB)});
  EXPECT_EQ(ReplayTrace(trace, kTorch, kUnlimited).reserved_peak, Bytes(20 * kMiB));
  trace.memory[1].waits = true;
  trace.memory[1].ready = Nanos(31);
  EXPECT_EQ(ReplayTrace(trace, kTorch, kUnlimited).reserved_peak, Bytes(40 * kMiB));
  trace.memory[1].ready = Nanos(30);
  EXPECT_EQ(ReplayTrace(trace, kTorch, kUnlimited).reserved_peak, Bytes(20 * kMiB));
}

TEST(TraceReplay, EndsWhereTheDeviceIsFull) {
  Trace trace = Play(Holes());
  trace.device_low = trace.device_expected = trace.device_high = Bytes(kMiB);
  const TraceReplay replay = ReplayTrace(trace, kTorch, Bytes(39 * kMiB));
  ASSERT_TRUE(replay.refused.has_value());
  EXPECT_EQ(*replay.refused, 6U);  // six of 3 MiB fill the first 20 MiB; a second segment has no room
  EXPECT_EQ(replay.refused_bytes, Bytes(3 * kMiB));
  EXPECT_EQ(replay.trace.memory.size(), 6U);
  ASSERT_EQ(replay.trace.marks.size(), 1U);
  EXPECT_EQ(replay.trace.marks[0].name, "out of memory");
  EXPECT_EQ(replay.trace.marks[0].events, 6U);
  EXPECT_NE(replay.trace.missing, "");
  EXPECT_EQ(replay.trace.device_high, Bytes(0)) << "that was said of another allocator";
  EXPECT_EQ(replay.cache_flushes, 1);
  EXPECT_EQ(Verify(replay.trace), "");
}

TEST(TraceReplay, AFlushThatHelpsIsCounted) {
  const Trace trace = Play({Allocated("a", 30 * kMiB), Freed("a"), Allocated("b", 40 * kMiB)});
  const TraceReplay replay = ReplayTrace(trace, kTorch, Bytes(40 * kMiB));
  EXPECT_EQ(replay.cache_flushes, 1);
  EXPECT_EQ(replay.refused, std::nullopt);
  EXPECT_EQ(replay.reserved_peak, Bytes(40 * kMiB));
}

TEST(TraceReplay, OfATraceWithoutMemoryIsEmpty) {
  const TraceReplay replay = ReplayTrace(Trace{}, kTorch, kUnlimited);
  EXPECT_EQ(replay.reserved_peak, Bytes(0));
  EXPECT_EQ(replay.fragmentation(), 0);
}

}  // namespace
}  // namespace tidemark::trace_replay_test
