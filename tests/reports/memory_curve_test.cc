// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/memory_curve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "tests/traces/trace_script.h"

namespace tidemark::memory_curve_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(MemoryCurve, KeepsTheHighestOfEveryStretchAndWhatIsAliveBetweenEvents) {
  // One happening every 10 ns, and the last one late.
  Trace trace = Play({Allocated("a", 100), Allocated("b", 50), Freed("b"), Freed("a")});
  trace.memory[3].issue = trace.memory[3].ready = Nanos(80);
  EXPECT_THAT(MemoryCurve(trace, 4), ElementsAre(Bytes(100), Bytes(150), Bytes(100), Bytes(100)));
  EXPECT_THAT(MemoryCurve(trace, 1), ElementsAre(Bytes(150)));
}

TEST(MemoryCurve, AnEventCountsWhenItsStreamGotThereInTheOrderOfIssue) {
  Trace trace = Play({Allocated("a", 100), Freed("a"), Allocated("b", 10)});
  trace.memory[1].ready = Nanos(90);  // "b" is issued behind it, and ready before
  trace.memory[2].ready = Nanos(40);
  EXPECT_THAT(MemoryCurve(trace, 2), ElementsAre(Bytes(100), Bytes(100)));
  const std::vector<Bytes> fine = MemoryCurve(trace, 9);
  EXPECT_THAT(fine[7], Bytes(100));
}

TEST(MemoryCurve, IsEmptyWithoutMemoryOrTime) {
  EXPECT_THAT(MemoryCurve(Trace{}, 10), IsEmpty());
  Trace still = Play({Allocated("a", 100)});
  still.memory[0].issue = still.memory[0].ready = Nanos(0);
  EXPECT_THAT(MemoryCurve(still, 10), IsEmpty());
}

}  // namespace
}  // namespace tidemark::memory_curve_test
