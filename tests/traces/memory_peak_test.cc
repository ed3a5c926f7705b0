// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/memory_peak.h"

#include <gtest/gtest.h>

#include "tests/traces/trace_script.h"

namespace tidemark::memory_peak_test {
namespace {

TEST(MemoryPeak, isTheFirstInstantOfTheHighestTotal) {
  const Trace trace = Play({Allocated("p", 100, 0, Category::parameter), Allocated("a", 30, 0), Allocated("a", 30, 1),
                            Freed("a", 1), Allocated("b", 30), Freed("a", 0), Freed("b"), Freed("p")});
  const MemoryPeak peak = FindMemoryPeak(trace, 2);
  EXPECT_EQ(peak.event, 2U);  // 160 bytes; so much is alive again after event 4
  EXPECT_EQ(peak.allocated, Bytes(160));
  EXPECT_EQ(peak.by_category[Category::parameter], Bytes(100));
  EXPECT_EQ(peak.by_category[Category::activation], Bytes(60));
  EXPECT_EQ(peak.by_category.Total(), peak.allocated);
}

TEST(MemoryPeak, listsTheLargestFamiliesThatAreAlive) {
  const Trace trace = Play({Allocated("small", 1), Allocated("gone", 500), Freed("gone"), Allocated("two", 300, 0),
                            Allocated("two", 300, 1), Allocated("one", 400)});
  const MemoryPeak peak = FindMemoryPeak(trace, 2);
  ASSERT_EQ(peak.largest.size(), 2U);
  EXPECT_EQ(trace.tensors[peak.largest[0].tensor.index].name, "two");
  EXPECT_EQ(peak.largest[0].count, 2);
  EXPECT_EQ(peak.largest[0].bytes, Bytes(600));
  EXPECT_EQ(trace.tensors[peak.largest[1].tensor.index].name, "one");
}

}  // namespace
}  // namespace tidemark::memory_peak_test
