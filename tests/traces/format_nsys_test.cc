// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/traces/nsys_sample.h"
#include "traces/formats/format.h"
#include "traces/place.h"

namespace tidemark::format_nsys_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TraceFile Read(const std::string& bytes) {
  Result<TraceFile> file = ReadTraces(bytes);
  EXPECT_TRUE(file) << (file ? "" : file.error().Text());
  return file ? std::move(*file) : TraceFile();
}

std::vector<std::string> Told(const Trace& trace) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < trace.memory.size(); ++i) {
    const MemoryEvent& event = trace.memory[i];
    const TraceTensor& tensor = trace.tensors[event.tensor.index];
    lines.push_back(std::to_string(event.issue.count()) + (event.alloc ? " + " : " - ") +
                    std::to_string(tensor.bytes.count()) + " " + tensor.name + "[" + std::to_string(event.index0) +
                    "] " + PlaceOf(trace, i).phase + ", reserved " + std::to_string(event.reserved_bytes.count()));
  }
  return lines;
}

TEST(NsysFormat, deviceMemoryOfEachProcessIsATraceOfItsOwn) {
  const TraceFile file = Read(NsysSample());
  EXPECT_EQ(file.format, "nsys");
  EXPECT_EQ(file.note, "");
  ASSERT_EQ(file.traces.size(), 2U);
  EXPECT_EQ(file.traces[0].role, "cuda:0 of process 77");
  EXPECT_EQ(file.traces[1].role, "cuda:0 of process 78");
  // Times count from the first event, 900. Pinned and managed memory are not on the device for sure. 32 MiB are the
  // pool's; what was there before is in no total that the file tells.
  EXPECT_THAT(
      Told(file.traces[0]),
      ElementsAre("0 + 512 alive before the recording[0] , reserved 0", "100 + 4096 cudaMalloc[0] , reserved 4096",
                  "1100 + 2048 layer.cudaMallocAsync[2] forward, reserved 33558528",
                  "1600 + 64 table[0] forward, reserved 33558592", "2100 - 4096 cudaMalloc[0] , reserved 33554496",
                  "3100 - 512 alive before the recording[0] , reserved 33554496"));
  EXPECT_THAT(Told(file.traces[1]), ElementsAre("300 + 100 device memory[0] other, reserved 0"));
}

TEST(NsysFormat, kernelsAndCopiesAreSlicesAndRangesArePhasesAndSteps) {
  const TraceFile file = Read(NsysSample());
  const Trace& trace = file.traces.at(0);
  std::vector<std::string> slices;
  for (const Slice& slice : trace.slices) {
    slices.push_back(trace.strings[slice.name.index] + " " + trace.streams[slice.stream].name + " " +
                     trace.streams[slice.stream].kind + " " + std::to_string(slice.start.count()) + "-" +
                     std::to_string(slice.end.count()) + " of " +
                     (slice.span == kNoSpan ? "none" : trace.spans[slice.span].phase));
  }
  EXPECT_THAT(slices,
              ElementsAre("memcpy stream 13 copy 900-950 of none", "sgemm_128x64 stream 7 compute 1200-1300 of forward",
                          "ncclDevKernel_AllReduce_Sum_f32 stream 20 collective 1250-1400 of none"));
  std::vector<std::string> phases;
  for (const Span& span : trace.spans) {
    phases.push_back(span.phase + " " + std::to_string(span.microbatch));
  }
  EXPECT_THAT(phases, ElementsAre("forward 0", "layer 2 0"));
  ASSERT_EQ(trace.steps.size(), 1U);
  EXPECT_EQ(trace.steps[0].end, Nanos(2000));
  EXPECT_EQ(trace.clock, "cupti");
}

TEST(NsysFormat, enumerationsAreThoseOfTheFile) {
  const std::string bytes = Database(std::string(kNsysTables) + R"(
    INSERT INTO ENUM_CUDA_MEM_KIND VALUES (2, NULL, 'Pinned'), (9, NULL, 'Device');
    INSERT INTO ENUM_CUDA_DEV_MEM_EVENT_OPER VALUES (1, NULL, 'Allocation'), (4, NULL, 'Deallocation');
    INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS (start, globalPid, deviceId, contextId, address, pc, bytes, memKind,
      memoryOperationType) VALUES (1, 0, 3, 1, 8, 0, 100, 2, 1), (2, 0, 3, 1, 9, 0, 200, 9, 1), (3, 0, 3, 1, 9, 0, 200, 9, 4);
  )");
  const TraceFile file = Read(bytes);
  ASSERT_EQ(file.traces.size(), 1U);
  EXPECT_EQ(file.traces[0].role, "cuda:3");
  EXPECT_THAT(Told(file.traces[0]),
              ElementsAre("0 + 200 device memory[0] , reserved 0", "1 - 200 device memory[0] , reserved 0"));
}

TEST(NsysFormat, missingTablesAreNoErrorAsLongAsThereIsSomething) {
  const TraceFile memory = Read(Database(R"(
    CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start, globalPid, deviceId, address, bytes, memKind, memoryOperationType);
    INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (5, 0, 0, 1, 64, 2, 0), (6, 0, 0, 2, 64, 1, 0);)"));
  EXPECT_EQ(memory.note, "");
  EXPECT_EQ(memory.traces.at(0).memory.size(), 1U);
  const TraceFile kernels = Read(Database(R"(
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 9, 0, 7);)"));
  EXPECT_THAT(kernels.note, HasSubstr("--cuda-memory-usage=true"));
  EXPECT_EQ(kernels.traces.at(0).slices.size(), 1U);
  const Result<TraceFile> nothing = ReadTraces(Database("CREATE TABLE t (a);"));
  ASSERT_FALSE(nothing);
  EXPECT_THAT(nothing.error().hint, HasSubstr("nsys profile"));
}

TEST(NsysFormat, whatTheProfilerLostIsToldInItsWords) {
  const TraceFile file = Read(Database(std::string(kNsysTables) + kNsysEnums + kNsysRows + R"(
    INSERT INTO DIAGNOSTIC_EVENT VALUES (2, 1, 1, 2, 'Not all CUDA events might have been collected.', NULL),
      (3, 1, 1, 2, 'Profiling has stopped.', NULL), (4, 1, 1, 2, '3 buffers were dropped.', NULL);)"));
  EXPECT_EQ(file.note, "Nsight Systems says: \"Not all CUDA events might have been collected.\" and 1 more");
}

TEST(NsysFormat, viewsTriggersAndVirtualTablesAreNotLookedAt) {
  const Result<TraceFile> view = ReadTraces(Database(R"(CREATE TABLE t (a); INSERT INTO t VALUES (1);
    CREATE VIEW CUDA_GPU_MEMORY_USAGE_EVENTS AS WITH RECURSIVE n(start) AS (SELECT 1 UNION ALL SELECT start + 1 FROM n)
      SELECT start, 0 globalPid, 0 deviceId, start address, 1 bytes, 2 memKind, 0 memoryOperationType FROM n;)"));
  ASSERT_FALSE(view);
  EXPECT_THAT(view.error().message, HasSubstr("it has neither"));
  const TraceFile generated = Read(Database(R"(
    CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start, globalPid, deviceId, address, memKind, memoryOperationType,
      bytes AS (length(zeroblob(900000))));
    INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (5, 0, 0, 1, 2, 0);
    CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, streamId);
    INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (5, 9, 0, 7);)"));
  EXPECT_THAT(generated.note, HasSubstr("1 rows lack"));
}

TEST(NsysFormat, aDatabaseInTwoFilesIsRefusedWithWhatToDo) {
  std::string bytes = NsysSample();
  bytes[18] = bytes[19] = 2;
  const Result<TraceFile> file = ReadTraces(bytes);
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().hint, HasSubstr("journal_mode"));
}

TEST(NsysFormat, cutAnywhereItIsASentenceOrASoundPart) {
  const std::string whole = NsysSample();
  for (std::size_t length = 16; length < whole.size(); ++length) {
    const Result<TraceFile> file = ReadTraces(std::string_view(whole).substr(0, length));
    if (!file) {
      ASSERT_EQ(file.error().code, ErrorCode::bad_input);
      ASSERT_FALSE(file.error().message.empty());
      continue;
    }
    for (const Trace& trace : file->traces) {
      ASSERT_EQ(Verify(trace), "");
    }
  }
}

TEST(NsysFormat, flippedBitsNeverCrash) {
  const std::string whole = NsysSample();
  std::mt19937 random(11);
  for (int round = 0; round < 3000; ++round) {
    std::string damaged = whole;
    for (int flips = 0; flips < 3; ++flips) {
      const std::size_t at = random() % damaged.size();
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
    }
    if (const Result<TraceFile> file = ReadTraces(damaged); file) {
      for (const Trace& trace : file->traces) {
        ASSERT_EQ(Verify(trace), "") << round;
      }
    }
  }
}

TEST(NsysFormat, textThatIsNoUtf8IsReplaced) {
  const TraceFile file = Read(Database(R"(
    CREATE TABLE CUDA_GPU_MEMORY_USAGE_EVENTS (start, globalPid, deviceId, address, bytes, memKind, memoryOperationType,
      name);
    INSERT INTO CUDA_GPU_MEMORY_USAGE_EVENTS VALUES (5, 0, 0, 1, 64, 2, 0, CAST(X'61ff62' AS TEXT)),
      (6, 0, 0, 2, 65, 2, 0, CAST(X'6772c3b6c39f65' AS TEXT));)"));
  ASSERT_EQ(file.traces.at(0).tensors.size(), 2U);
  EXPECT_EQ(file.traces[0].tensors[0].name,
            "a\xef\xbf\xbd"
            "b");  // U+FFFD
  EXPECT_EQ(file.traces[0].tensors[1].name,
            "gr\xc3\xb6\xc3\x9f"
            "e");
}

TEST(NsysFormat, isNotWritten) {
  const auto format = FindTraceFormat("nsys");
  ASSERT_TRUE(format);
  EXPECT_FALSE((*format)->writes());
  EXPECT_FALSE((*format)->Write({}));
}

}  // namespace
}  // namespace tidemark::format_nsys_test
