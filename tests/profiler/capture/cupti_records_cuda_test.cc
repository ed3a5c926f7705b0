// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/cupti_records_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "profiler/capture/cupti_library_cuda.h"
#include "profiler/capture/gpu_capture.h"
#include "profiler/capture/gpu_memory_use.h"

namespace tidemark::cupti_records_cuda_test {
namespace {

using ::testing::HasSubstr;

/// A buffer as CUPTI fills it: records one behind the other, each in the layout of its kind.
class BuiltBuffer {
 public:
  template <class Record>
  void Add(const Record& record) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(record) / sizeof(std::uint64_t));
    std::memcpy(bytes_.data() + at, &record, sizeof(record));
  }

  /// Read by CUPTI's own library, which needs no GPU for it.
  GpuRecords Read() {
    const Result<CuptiLibrary> cupti = LoadCupti();
    EXPECT_TRUE(cupti.ok()) << cupti.error().Text();
    GpuRecords records;
    AppendRecords(reinterpret_cast<std::uint8_t*>(bytes_.data()), bytes_.size() * sizeof(std::uint64_t),
                  cupti->next_record, records);
    return records;
  }

 private:
  std::vector<std::uint64_t> bytes_;  // aligned as CUPTI wants it
};

CuptiMemory Memory(bool alloc, std::uint64_t address, std::uint64_t bytes, std::uint64_t at) {
  CuptiMemory record{};
  record.kind = CUPTI_ACTIVITY_KIND_MEMORY2;
  record.memoryOperationType =
      alloc ? CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_ALLOCATION : CUPTI_ACTIVITY_MEMORY_OPERATION_TYPE_RELEASE;
  record.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_DEVICE;
  record.address = address;
  record.bytes = bytes;
  record.timestamp = at;
  return record;
}

CuptiKernel Kernel(const char* name, std::uint64_t start, std::uint64_t end, std::uint32_t correlation) {
  CuptiKernel record{};
  record.kind = CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL;
  record.name = name;
  record.start = start;
  record.end = end;
  record.streamId = 7;
  record.correlationId = correlation;
  return record;
}

TEST(CuptiRecords, AreReadInTheLayoutOfTheirKind) {
  BuiltBuffer buffer;
  CuptiMemory of_nccl = Memory(true, 0x1000, 4096, 10);
  of_nccl.source = "/usr/lib/libnccl.so.2";
  buffer.Add(of_nccl);
  CuptiMemory pooled = Memory(true, 0x9000, 512, 11);
  pooled.memoryPoolConfig.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
  pooled.memoryPoolConfig.pool.size = 1 << 21;
  pooled.memoryPoolConfig.address = 0x7000;
  buffer.Add(pooled);
  CuptiMemory pinned = Memory(true, 0x5000, 64, 12);
  pinned.memoryKind = CUPTI_ACTIVITY_MEMORY_KIND_PINNED;
  buffer.Add(pinned);
  buffer.Add(Kernel("gemm", 100, 250, 3));
  CuptiOperation operation{};
  operation.kind = CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION;
  operation.externalKind = CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0;
  operation.externalId = 42;
  operation.correlationId = 3;
  buffer.Add(operation);
  CuptiCopy copy{};
  copy.kind = CUPTI_ACTIVITY_KIND_MEMCPY;
  copy.bytes = 800;
  copy.start = 260;
  copy.end = 270;
  buffer.Add(copy);
  CuptiFill fill{};
  fill.kind = CUPTI_ACTIVITY_KIND_MEMSET;
  fill.bytes = 900;
  fill.start = 280;
  fill.end = 281;
  buffer.Add(fill);
  CuptiOverhead overhead{};
  overhead.kind = CUPTI_ACTIVITY_KIND_OVERHEAD;
  overhead.start = 300;
  overhead.end = 340;
  buffer.Add(overhead);
  buffer.Add(Memory(false, 0x1000, 4096, 400));
  const GpuRecords records = buffer.Read();

  ASSERT_EQ(records.memory.size(), 4u);
  EXPECT_TRUE(records.memory[0].alloc);
  EXPECT_EQ(records.memory[0].address, 0x1000u);
  EXPECT_EQ(records.memory[0].bytes, Bytes(4096));
  EXPECT_EQ(records.memory[0].at, Nanos(10));
  EXPECT_EQ(records.memory[0].source, "/usr/lib/libnccl.so.2");
  EXPECT_FALSE(records.memory[0].from_pool);
  EXPECT_TRUE(records.memory[1].from_pool);
  EXPECT_EQ(records.memory[1].pool_bytes, Bytes(1 << 21));
  EXPECT_EQ(records.memory[1].pool, 0x7000U);
  EXPECT_EQ(records.memory[2].kind, GpuMemoryRecord::Kind::pinned_host);
  EXPECT_FALSE(records.memory[3].alloc);
  ASSERT_EQ(records.work.size(), 3u);
  EXPECT_EQ(records.work[0].name, "gemm");
  EXPECT_EQ(records.work[0].start, Nanos(100));
  EXPECT_EQ(records.work[0].end, Nanos(250));
  EXPECT_EQ(records.work[0].stream, 7u);
  EXPECT_EQ(records.work[0].correlation, 3u);
  EXPECT_EQ(records.work[1].kind, GpuWorkRecord::Kind::copy);
  EXPECT_EQ(records.work[1].bytes, Bytes(800));
  EXPECT_EQ(records.work[2].kind, GpuWorkRecord::Kind::fill);
  ASSERT_EQ(records.operations.size(), 1u);
  EXPECT_EQ(records.operations[0].operation, 42u);
  EXPECT_EQ(records.operations[0].correlation, 3u);
  ASSERT_EQ(records.overhead.size(), 1u);
  EXPECT_EQ(records.overhead[0].end - records.overhead[0].start, Nanos(40));
  EXPECT_EQ(records.unknown, 0);
  EXPECT_TRUE(records.Doubts().empty());
}

// A pool that is trimmed shrinks, one that is destroyed is gone; that one was made says nothing yet.
TEST(CuptiRecords, TellHowPoolsShrink) {
  BuiltBuffer buffer;
  const auto add = [&](CUpti_ActivityMemoryPoolOperationType what, std::uint64_t size) {
    CuptiPool pool{};
    pool.kind = CUPTI_ACTIVITY_KIND_MEMORY_POOL;
    pool.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
    pool.memoryPoolOperationType = what;
    pool.address = 0x7000;
    pool.size = size;
    pool.timestamp = 20;
    buffer.Add(pool);
  };
  add(CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_CREATED, 0);
  CuptiMemory pooled = Memory(true, 0x9000, 512, 10);
  pooled.memoryPoolConfig.memoryPoolType = CUPTI_ACTIVITY_MEMORY_POOL_TYPE_LOCAL;
  pooled.memoryPoolConfig.pool.size = 64 << 20;
  pooled.memoryPoolConfig.address = 0x7000;
  pooled.source = "/usr/lib/libnccl.so.2";
  buffer.Add(pooled);
  add(CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_TRIMMED, 32 << 20);
  const auto nobody = [](std::uint64_t) { return false; };
  EXPECT_EQ(FollowGpuMemory(buffer.Read(), nobody).AtEnd(kNccl), Bytes(32 << 20));
  add(CUPTI_ACTIVITY_MEMORY_POOL_OPERATION_TYPE_DESTROYED, 32 << 20);
  const GpuRecords records = buffer.Read();
  EXPECT_EQ(FollowGpuMemory(records, nobody).AtEnd(kNccl), Bytes());
  EXPECT_EQ(FollowGpuMemory(records, nobody).peak, Bytes(64 << 20));
  EXPECT_EQ(records.memory.size(), 3u);
  EXPECT_EQ(records.unknown, 0);
}

TEST(CuptiRecords, TellHowLongTheHostWaited) {
  BuiltBuffer buffer;
  CuptiWait wait{};
  wait.kind = CUPTI_ACTIVITY_KIND_SYNCHRONIZATION;
  wait.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_SYNCHRONIZE;
  wait.start = 100;
  wait.end = 175;
  buffer.Add(wait);
  wait.type = CUPTI_ACTIVITY_SYNCHRONIZATION_TYPE_STREAM_WAIT_EVENT;  // one stream for another
  buffer.Add(wait);
  const GpuRecords records = buffer.Read();
  ASSERT_EQ(records.waits.size(), 1u);
  EXPECT_EQ(records.waits[0].end - records.waits[0].start, Nanos(75));
}

// A forced flush hands out what is not complete: its times are 0, which is no time.
TEST(CuptiRecords, WithoutTimesMakeTheMeasurementDoubtful) {
  BuiltBuffer buffer;
  buffer.Add(Kernel("gemm", 100, 0, 1));
  buffer.Add(Memory(true, 0x1000, 4096, 0));
  GpuRecords records = buffer.Read();
  EXPECT_EQ(records.without_times, 2);
  ASSERT_EQ(records.Doubts().size(), 1u);
  EXPECT_THAT(records.Doubts()[0], HasSubstr("2 records have no times"));
  records.dropped = 5;
  EXPECT_THAT(records.Doubts()[0], HasSubstr("CUPTI dropped 5 records"));
}

TEST(CuptiRecords, OfOtherKindsAreCounted) {
  BuiltBuffer buffer;
  CUpti_ActivityAPI api{};
  api.kind = CUPTI_ACTIVITY_KIND_RUNTIME;
  buffer.Add(api);
  EXPECT_EQ(buffer.Read().unknown, 1);
}

TEST(GpuCapture, SaysWhatIsMissingWhereThereIsNoDriver) {
  const auto capture = GpuCapture::Begin({});
  if (capture.ok()) {
    GTEST_SKIP() << "this machine has a GPU";
  }
  EXPECT_EQ(capture.error().code, ErrorCode::machine_cannot);
  EXPECT_THAT(capture.error().Text(), HasSubstr("CUPTI answers CUPTI_ERROR_UNKNOWN"));
  EXPECT_THAT(capture.error().Text(), HasSubstr("tidemark doctor"));
}

}  // namespace
}  // namespace tidemark::cupti_records_cuda_test
