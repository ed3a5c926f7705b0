// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/gpu_memory_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <tuple>

namespace tidemark::gpu_memory_use_test {
namespace {

using ::testing::ElementsAre;
using Call = GpuVirtualMemoryRecord::Call;

GpuMemoryRecord Came(std::uint64_t address, std::int64_t bytes, std::int64_t at, const std::string& source = "") {
  GpuMemoryRecord record;
  record.address = address;
  record.bytes = Bytes(bytes);
  record.at = Nanos(at);
  record.source = source;
  return record;
}

GpuMemoryRecord Went(std::uint64_t address, std::int64_t bytes, std::int64_t at) {
  GpuMemoryRecord record = Came(address, bytes, at);
  record.alloc = false;
  return record;
}

bool Below0x8000(std::uint64_t address) { return address < 0x8000; }

TEST(GpuMemoryUse, BelongsToTheLibraryThatAsked) {
  GpuRecords records;
  records.memory = {Came(0x1000, 100, 1, "/opt/app"),         Came(0x9000, 30, 2, "/usr/lib/libnccl.so.2.28.9"),
                    Came(0xa000, 20, 3, "libcublasLt.so.13"), Went(0x1000, 100, 4),
                    Came(0x2000, 90, 5, "/opt/app"),          Came(0xb000, 7, 6, "/opt/app")};
  const GpuMemoryUse use = FollowGpuMemory(records, Below0x8000);
  EXPECT_EQ(use.peak, Bytes(150));  // 100 + 30 + 20, before the first goes; after it 90 + 30 + 20 + 7
  EXPECT_EQ(use.at, Nanos(3));
  EXPECT_THAT(use.owners, ElementsAre(GpuOwner{"tensors", Bytes(100), Bytes(100), Bytes(90)},
                                      GpuOwner{"NCCL", Bytes(30), Bytes(30), Bytes(30)},
                                      GpuOwner{"cuBLAS", Bytes(20), Bytes(20), Bytes(20)},
                                      GpuOwner{"other", Bytes(0), Bytes(7), Bytes(7)}));
  EXPECT_EQ(use.AtEnd("NCCL"), Bytes(30));
  EXPECT_EQ(use.AtEnd("cuDNN"), Bytes());
}

// Expandable segments: memory is made once and mapped where it is needed. It is the device's from its making to its
// release, and ours because it was mapped where our allocator keeps its tensors.
TEST(GpuMemoryUse, OfPhysicalMemoryLastsUntilItsReleaseHoweverItIsMapped) {
  GpuRecords records;
  const auto call = [](Call what, std::uint64_t handle, std::uint64_t address, std::int64_t bytes, std::int64_t at) {
    return GpuVirtualMemoryRecord{what, handle, address, Bytes(bytes), Nanos(at), ""};
  };
  records.virtual_memory = {call(Call::create, 1, 0, 64, 10),     call(Call::map, 1, 0x1000, 64, 11),
                            call(Call::create, 2, 0, 32, 12),     call(Call::map, 2, 0x9000, 32, 13),
                            call(Call::unmap, 0, 0x1000, 64, 14), call(Call::create, 3, 0, 16, 15),
                            call(Call::release, 1, 0, 0, 20),     call(Call::release, 9, 0, 0, 21)};
  const GpuMemoryUse use = FollowGpuMemory(records, Below0x8000);
  EXPECT_EQ(use.peak, Bytes(64 + 32 + 16));
  EXPECT_EQ(use.at, Nanos(15));
  EXPECT_THAT(use.owners, ElementsAre(GpuOwner{"tensors", Bytes(64), Bytes(64), Bytes(0)},
                                      GpuOwner{"other", Bytes(48), Bytes(48), Bytes(48)}));
}

// NCCL takes its memory in this way, too.
TEST(GpuMemoryUse, OfPhysicalMemoryBelongsToTheLibraryThatAsked) {
  GpuRecords records;
  records.virtual_memory = {{Call::create, 1, 0, Bytes(64), Nanos(10), "/usr/lib/libnccl.so.2"},
                            {Call::map, 1, 0x9000, Bytes(64), Nanos(11), ""},
                            {Call::create, 2, 0, Bytes(32), Nanos(12), "/opt/tidemark"},
                            {Call::map, 2, 0x1000, Bytes(32), Nanos(13), ""}};
  const GpuMemoryUse use = FollowGpuMemory(records, Below0x8000);
  EXPECT_EQ(use.AtEnd("NCCL"), Bytes(64));
  EXPECT_EQ(use.AtEnd("tensors"), Bytes(32));
}

// Whether CUPTI also has memory records of mapped memory is its version's secret: the bytes count once.
TEST(GpuMemoryUse, CountsMappedMemoryOnce) {
  GpuRecords records;
  records.virtual_memory = {{Call::create, 1, 0, Bytes(64), Nanos(10), ""},
                            {Call::map, 1, 0x1000, Bytes(64), Nanos(11), ""}};
  records.memory = {Came(0x1000, 64, 11), Came(0x3000, 5, 12)};
  const GpuMemoryUse use = FollowGpuMemory(records, Below0x8000);
  EXPECT_EQ(use.peak, Bytes(69));
  EXPECT_EQ(use.recorded_twice, 1);
}

TEST(GpuMemoryUse, OfAPoolIsThePoolsSize) {
  GpuRecords records;
  for (const auto& [at, pool] : {std::pair{1, 2048}, {2, 4096}, {3, 1024}}) {
    GpuMemoryRecord record = Came(0x1000, 10, at);
    record.from_pool = true;
    record.pool_bytes = Bytes(pool);
    records.memory.push_back(record);
  }
  const GpuMemoryUse use = FollowGpuMemory(records, Below0x8000);
  EXPECT_EQ(use.peak, Bytes(4096));
  EXPECT_THAT(use.owners, ElementsAre(GpuOwner{"tensors", Bytes(4096), Bytes(4096), Bytes(1024)}));
}

TEST(GpuMemoryUse, TellsPoolsApart) {
  GpuRecords records;
  for (const auto& [at, pool, size] : {std::tuple{1, 7U, 2048}, {2, 9U, 512}, {3, 7U, 1024}}) {
    GpuMemoryRecord record = Came(0x1000, 10, at);
    record.from_pool = true;
    record.pool = pool;
    record.pool_bytes = Bytes(size);
    records.memory.push_back(record);
  }
  const GpuMemoryUse use = FollowGpuMemory(records, Below0x8000);
  EXPECT_EQ(use.peak, Bytes(2048 + 512));
  EXPECT_EQ(use.AtEnd(kTensorOwner), Bytes(1024 + 512));
}

TEST(GpuMemoryUse, LeavesOutTheHosts) {
  GpuRecords records;
  records.memory = {Came(0x1000, 64, 1)};
  records.memory[0].kind = GpuMemoryRecord::Kind::pinned_host;
  EXPECT_EQ(FollowGpuMemory(records, Below0x8000).peak, Bytes());
}

}  // namespace
}  // namespace tidemark::gpu_memory_use_test
