// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/pool_allocator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "models/job/allocator_options.h"
#include "profiler/device/tensor_memory.h"
#include "sim/memory/allocator.h"
#include "tests/profiler/device/fake_gpu_device.h"

namespace tidemark::pool_allocator_test {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

constexpr Bytes kMiB(1 << 20);
constexpr AllocatorOptions kAsync{.kind = AllocatorKind::cuda_async};

std::unique_ptr<Allocator> PoolOn(FakeGpuDevice& gpu, Bytes capacity, Bytes threshold = Bytes()) {
  AllocatorOptions options = kAsync;
  options.release_threshold = threshold;
  return *gpu.OwnAllocator(options, capacity);
}

TEST(PoolAllocator, CountsWhatThePoolSays) {
  FakeGpuDevice gpu(kMiB * 1024);
  const auto pool = PoolOn(gpu, kMiB * 1024);
  const auto first = pool->Allocate(kMiB * 20, 0);
  const auto second = pool->Allocate(kMiB * 20, 0);
  ASSERT_TRUE(first && second);
  EXPECT_NE(first->address, second->address);
  EXPECT_EQ(first->charged, kMiB * 20);
  EXPECT_EQ(pool->allocated(), kMiB * 40);
  EXPECT_EQ(pool->reserved(), kMiB * 64);
  pool->Free(first->handle);
  EXPECT_EQ(pool->allocated(), kMiB * 20);
  EXPECT_EQ(pool->reserved(), kMiB * 64) << "until the host has waited";
  gpu.Synchronize();
  pool->Synchronize();
  EXPECT_EQ(pool->reserved(), kMiB * 32);
  EXPECT_EQ(pool->allocated_peak(), kMiB * 40);
  EXPECT_EQ(pool->reserved_peak(), kMiB * 64);
  EXPECT_EQ(pool->device().mapped_peak(), kMiB * 64);
}

TEST(PoolAllocator, KeepsWhatTheThresholdSays) {
  FakeGpuDevice gpu(kMiB * 1024);
  const auto pool = PoolOn(gpu, kMiB * 1024, kMiB * 64);
  pool->Free(pool->Allocate(kMiB * 90, 0)->handle);
  gpu.Synchronize();
  pool->Synchronize();
  EXPECT_EQ(pool->reserved(), kMiB * 64);
}

// What another stream has freed can be had when its work is over: rather than fail, the allocator waits for that.
TEST(PoolAllocator, WaitsForOtherStreamsBeforeItFails) {
  FakeGpuDevice gpu(kMiB * 1024);
  const auto pool = PoolOn(gpu, kMiB * 64);
  pool->Free(pool->Allocate(kMiB * 40, 0)->handle);
  EXPECT_TRUE(pool->Allocate(kMiB * 40, 1));
  EXPECT_EQ(pool->cache_flushes(), 1);
  EXPECT_FALSE(pool->Allocate(kMiB * 40, 1)) << "beyond the capacity";
  EXPECT_EQ(pool->cache_flushes(), 2);
  EXPECT_EQ(pool->Statistics().ooms, 1);
  EXPECT_EQ(pool->device().capacity(), kMiB * 64);
}

TEST(PoolAllocator, RunsOutWhereTheGpuDoes) {
  FakeGpuDevice gpu(kMiB * 64);
  const auto pool = PoolOn(gpu, kMiB * 4096);
  EXPECT_TRUE(pool->Allocate(kMiB * 64, 0));
  EXPECT_FALSE(pool->Allocate(kMiB, 0));
  EXPECT_EQ(pool->device().capacity(), kMiB * 64);
}

TEST(PoolAllocator, GivesEverythingBack) {
  FakeGpuDevice gpu(kMiB * 1024);
  {
    const auto pool = PoolOn(gpu, kMiB * 1024, kMiB * 1024);
    ASSERT_TRUE(pool->Allocate(kMiB * 3, 0) && pool->Allocate(kMiB * 3, 2));
    const auto empty = pool->Allocate(Bytes(), 1);
    ASSERT_TRUE(empty);
    EXPECT_EQ(empty->address, 0u);
    pool->Free(empty->handle);
    pool->Free(pool->Allocate(kMiB, 1)->handle);
  }
  gpu.fake().ExpectNothingLeft();
}

TEST(PoolAllocator, IsNobodyElsesKind) {
  FakeGpuDevice gpu(kMiB * 64);
  EXPECT_EQ(*gpu.OwnAllocator({}, kMiB * 64), nullptr);
  EXPECT_EQ(gpu.pool(), nullptr);
}

// Two streams use it: a third one waits for both and frees it, so that neither stands still for the other.
TEST(PoolAllocator, FreesBehindAllThatUse) {
  FakeGpuDevice gpu(kMiB * 64);
  TensorMemory memory(PoolOn(gpu, kMiB * 64), gpu);
  const auto piece = memory.Allocate(kMiB * 40, 0);
  ASSERT_TRUE(piece);
  memory.FreeInUse(*piece, {7, 9});
  constexpr std::uint32_t kNobodys = std::numeric_limits<std::uint32_t>::max();
  EXPECT_THAT(gpu.waits(), ElementsAre(Pair(kNobodys, 7), Pair(kNobodys, 9)));
  EXPECT_EQ(memory.live_bytes(), Bytes());
  EXPECT_TRUE(memory.Allocate(kMiB * 40, 0));
  EXPECT_EQ(memory.allocator().cache_flushes(), 1) << "the first stream has not freed it";
}

TEST(GpuPool, KnowsWhatItHasHandedOut) {
  FakeGpuDevice gpu(kMiB * 1024);
  const auto pool = PoolOn(gpu, kMiB * 1024);
  const auto first = pool->Allocate(Bytes(1000), 0);
  const auto second = pool->Allocate(Bytes(1000), 0);
  ASSERT_TRUE(first && second);
  pool->Free(first->handle);
  for (const std::uint64_t address : {first->address, second->address}) {
    EXPECT_TRUE(gpu.pool()->Has(address) && gpu.pool()->Has(address + 999));
  }
  EXPECT_FALSE(gpu.pool()->Has(first->address - 1));
  EXPECT_FALSE(gpu.pool()->Has(second->address + 1000));
}

}  // namespace
}  // namespace tidemark::pool_allocator_test
