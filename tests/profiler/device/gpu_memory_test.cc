// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/gpu_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "sim/memory/capacity.h"
#include "tests/profiler/device/expect_same.h"
#include "tests/profiler/device/fake_gpu_driver.h"
#include "tests/sim/allocation_log.h"

namespace tidemark::gpu_memory_test {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr Bytes kPage = Bytes(2 * kMiB);

// Which memory lies below is nothing that an allocator decides by: what the simulator predicts of a capacity is what
// happens over the driver, which has its rules kept and gets everything back.
TEST(GpuMemory, GivesWhatPretendedMemoryPredicts) {
  for (const auto& [name, options] : EveryAllocator()) {
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(name + ", log " + std::to_string(seed));
      const std::vector<Request> log = RandomLog(seed);
      const Outcome unlimited = Replay(log, options, Bytes(std::int64_t{4} << 30));
      for (const Bytes capacity : {unlimited.reserved_peak, Bytes(unlimited.reserved_peak.count() * 3 / 4)}) {
        FakeGpuDriver driver(Bytes(std::int64_t{8} << 30));
        ExpectSame(Replay(log, options, std::make_unique<GpuMemory>(driver, capacity)), Replay(log, options, capacity));
        driver.ExpectNothingLeft();
      }
    }
  }
}

// Somebody else has the rest of the GPU: it runs out as if it were that much smaller.
TEST(GpuMemory, RunsOutWhereTheGpuDoes) {
  constexpr Bytes kMuch(std::int64_t{4} << 30);
  for (const bool expandable : {false, true}) {
    const AllocatorOptions options{.expandable_segments = expandable};
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      SCOPED_TRACE(seed);
      const std::vector<Request> log = RandomLog(seed);
      const Bytes room = Bytes(Replay(log, options, kMuch).reserved_peak.count() * 3 / 4);
      FakeGpuDriver driver(room);
      ExpectSame(Replay(log, options, std::make_unique<GpuMemory>(driver, kMuch)), Replay(log, options, room));
      driver.ExpectNothingLeft();
    }
  }
}

// PyTorch's large segments are expanded by 20 MiB, which is no power of two, as the driver's alignments have to be.
TEST(GpuMemory, AlignsPagesThatAreNoPowerOfTwo) {
  constexpr Bytes kLarge(20 * kMiB);
  FakeGpuDriver driver(10 * kLarge);
  {
    GpuMemory memory(driver, 10 * kLarge);
    const std::uint64_t before = *driver.ReserveAddresses(kPage);  // what comes next is no multiple of 20 MiB
    const auto first = memory.Reserve(kLarge), second = memory.Reserve(kLarge);
    ASSERT_TRUE(first && second);
    for (const std::uint64_t range : {*first, *second}) {
      EXPECT_EQ(range % static_cast<std::uint64_t>(kLarge.count()), 0u);
      ASSERT_TRUE(memory.Map(range, 2 * kLarge));
      EXPECT_TRUE(driver.allows_all());
    }
    memory.Unmap(*first, 2 * kLarge);
    memory.Release(*first, kLarge);
    driver.FreeAddresses(before, kPage);
  }
  driver.ExpectNothingLeft();
}

TEST(GpuMemory, MapsAllPagesOrNone) {
  FakeGpuDriver driver(3 * kPage);
  GpuMemory memory(driver, 100 * kPage);
  const auto range = memory.Reserve(kPage);
  ASSERT_TRUE(range);
  EXPECT_EQ(*range % static_cast<std::uint64_t>(kPage.count()), 0u);
  EXPECT_FALSE(memory.Map(*range, 4 * kPage));
  EXPECT_EQ(driver.used(), Bytes());
  ASSERT_TRUE(memory.Map(*range, 3 * kPage));
  EXPECT_EQ(driver.totals().free, Bytes());
  memory.Unmap(*range + static_cast<std::uint64_t>(kPage.count()), kPage);
  EXPECT_EQ(driver.used(), 2 * kPage);
}

TEST(GpuMemory, KnowsItsOwnAddresses) {
  FakeGpuDriver driver(10 * kPage);
  GpuMemory memory(driver, 10 * kPage);
  const std::uint64_t foreign = *driver.Allocate(kPage);
  const auto piece = memory.Take(Bytes(1000));
  const auto range = memory.Reserve(kPage);
  EXPECT_TRUE(memory.Has(*piece) && memory.Has(*piece + 999));
  EXPECT_FALSE(memory.Has(*piece + 1000));
  EXPECT_TRUE(memory.Has(*range + 5));
  EXPECT_FALSE(memory.Has(foreign));
  memory.Give(*piece, Bytes(1000));
  EXPECT_FALSE(memory.Has(*piece));
}

TEST(GpuDriver, SaysWhyThereIsNone) {
  const auto driver = GpuDriver::Open(0);
  if (driver.ok()) {
    GTEST_SKIP() << "this machine has a GPU";
  }
  EXPECT_EQ(driver.error().code, ErrorCode::machine_cannot);
  EXPECT_FALSE(driver.error().hint.empty());
}

// A tensor may lie across pages: those one behind the other are one stretch.
TEST(GpuMemory, TellsWhatItHas) {
  FakeGpuDriver driver(Bytes(std::int64_t{1} << 30));
  GpuMemory memory(driver, Bytes(std::int64_t{1} << 30));
  const auto piece = memory.Take(kPage * 3);
  const auto range = memory.Reserve(kPage);
  ASSERT_TRUE(piece && range && memory.Map(*range, kPage * 2));
  const auto behind = [](std::uint64_t begin, Bytes bytes) {
    return begin + static_cast<std::uint64_t>(bytes.count());
  };
  ASSERT_TRUE(memory.Map(behind(*range, kPage * 4), kPage));
  using Stretch = std::pair<std::uint64_t, std::uint64_t>;
  std::vector<Stretch> found;
  memory.ForEachTaken([&](std::uint64_t begin, std::uint64_t end) { found.emplace_back(begin, end); });
  EXPECT_THAT(found, testing::ElementsAre(Stretch(*piece, behind(*piece, kPage * 3)),
                                          Stretch(*range, behind(*range, kPage * 2)),
                                          Stretch(behind(*range, kPage * 4), behind(*range, kPage * 5))));
}

}  // namespace
}  // namespace tidemark::gpu_memory_test
