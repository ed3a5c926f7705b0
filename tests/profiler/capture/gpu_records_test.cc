// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/gpu_records.h"

#include <gtest/gtest.h>

namespace tidemark::gpu_records_test {
namespace {

GpuRecords SomeOfEach() {
  GpuRecords records;
  for (const std::int64_t at : {10, 20, 30}) {
    records.memory.emplace_back().at = Nanos(at);
    records.virtual_memory.emplace_back().at = Nanos(at);
    records.modules.emplace_back().at = Nanos(at);
  }
  records.work.resize(2);
  records.operations.resize(3);
  records.overhead.resize(1);
  records.dropped = 4;
  return records;
}

TEST(GpuRecords, GiveTheirWorkAndKeepWhatIsOfMemory) {
  GpuRecords records = SomeOfEach();
  const GpuRecords work = records.TakeWork();
  EXPECT_EQ(work.work.size(), 2U);
  EXPECT_EQ(work.operations.size(), 3U);
  EXPECT_EQ(work.overhead.size(), 1U);
  EXPECT_TRUE(work.memory.empty() && work.Doubts().empty());
  EXPECT_TRUE(records.work.empty() && records.operations.empty() && records.overhead.empty());
  EXPECT_EQ(records.memory.size(), 3U);
  EXPECT_EQ(records.Doubts().size(), 1U) << "what was dropped may have been of memory";
}

TEST(GpuRecords, AreChosenByTheirInstants) {
  const GpuRecords between = SomeOfEach().MemoryBetween(Nanos(10), Nanos(20));
  ASSERT_EQ(between.memory.size(), 1U);
  EXPECT_EQ(between.memory[0].at, Nanos(20));
  EXPECT_EQ(between.virtual_memory.size(), 1U);
  EXPECT_EQ(between.modules.size(), 1U);
  EXPECT_TRUE(between.work.empty());
}

}  // namespace
}  // namespace tidemark::gpu_records_test
