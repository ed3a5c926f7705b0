// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/gpu_trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/traces/trace_script.h"
#include "traces/compare/compare.h"

namespace tidemark::gpu_trace_test {
namespace {

GpuWorkRecord Kernel(const std::string& name, std::uint32_t stream, std::uint32_t correlation, std::int64_t start,
                     std::int64_t end) {
  GpuWorkRecord record;
  record.name = name;
  record.stream = stream;
  record.correlation = correlation;
  record.start = Nanos(start);
  record.end = Nanos(end);
  return record;
}

/// Issued in phases 0, 0 and 2; the first one is number 40 of the run.
const std::vector<IssuedOperation> kOperations = {
    {"layer.wq.forward", 0}, {"reduce bucket", 0}, {"layer.wq.forward", 2}};
constexpr std::uint64_t kFirst = 40;

GpuNames Names() { return {kFirst, kOperations, {{7, {"compute", "compute"}}, {13, {"dp", "collective"}}}}; }

/// Operation 0 runs as two kernels; 1 beside it on another stream; 2 later; a copy of nobody's.
GpuRecords Records(std::int64_t zero) {
  GpuRecords records;
  records.operations = {{kFirst, 100}, {kFirst, 101}, {kFirst + 1, 102}, {kFirst + 2, 103}};
  records.work = {Kernel("gemm", 7, 100, zero + 10, zero + 40), Kernel("splitk_reduce", 7, 101, zero + 42, zero + 50),
                  Kernel("ncclDevKernel", 13, 102, zero + 20, zero + 90),
                  Kernel("gemm", 7, 103, zero + 60, zero + 100)};
  records.work.push_back(Kernel("", 9, 104, zero + 1, zero + 5));
  records.work.back().kind = GpuWorkRecord::Kind::copy;
  records.work.push_back(Kernel("warm up", 7, 105, zero - 30, zero - 20));
  records.work.push_back(Kernel("_ZN3lib4FillEPfi", 9, 106, zero + 6, zero + 8));
  return records;
}

std::string Text(const GpuSlice& slice) {
  return slice.stream.name + " " + slice.operation.name + " " + std::to_string(slice.start.count()) + ".." +
         std::to_string(slice.end.count()) + " in " + std::to_string(slice.operation.span);
}

TEST(GpuTrace, HasASliceForEachOperationHoweverManyKernelsItLaunched) {
  std::vector<std::string> slices;
  const std::vector<GpuSlice> found = SlicesOf(Records(1'000'000), Names(), Nanos(1'000'000));
  for (const GpuSlice& slice : found) {
    slices.push_back(Text(slice));
  }
  EXPECT_THAT(slices, testing::ElementsAre("compute layer.wq.forward 10..50 in 0", "dp reduce bucket 20..90 in 0",
                                           "compute layer.wq.forward 60..100 in 2", "gpu stream 9 copy 1..5 in 65535",
                                           "gpu stream 9 Fill 6..8 in 65535"));
  EXPECT_EQ(found[1].stream.kind, "collective");
}

// What was flushed late is of a step whose names are gone.
TEST(GpuTrace, KnowsNoNameOfAnotherStepsOperation) {
  GpuRecords records = Records(0);
  records.operations = {{kFirst - 1, 100}, {kFirst + 3, 101}};
  const std::vector<GpuSlice> found = SlicesOf(records, Names(), Nanos());
  ASSERT_GE(found.size(), 2U);
  EXPECT_EQ(Text(found[0]), "compute gemm 10..40 in 65535");
  EXPECT_EQ(Text(found[1]), "compute splitk_reduce 42..50 in 65535");
}

/// From records to what `tidemark compare` says of them.
TEST(GpuTrace, IsComparedWithAPredictionOperatorByOperator) {
  const auto with_step = [](Trace trace) {
    trace.step = Nanos(120);
    return trace;
  };
  Trace predicted = with_step(Play({Begun("forward", 0), Allocated("x", 512), Freed("x"), Ended()}));
  Trace measured = predicted;
  measured.origin = "measured on cuda";
  predicted.streams = {{"compute", "compute"}, {"dp", "collective"}};
  predicted.strings = {"layer.wq.forward", "reduce bucket"};
  predicted.slices = {{0, {0}, Nanos(10), Nanos(50)}, {1, {1}, Nanos(20), Nanos(90)}, {0, {0}, Nanos(60), Nanos(90)}};
  GpuRecords records = Records(500);
  records.work.erase(records.work.begin() + 4, records.work.end());
  measured.streams = {{"compute", "compute"}, {"dp", "collective"}};
  const std::vector<GpuSlice> slices = SlicesOf(records, Names(), Nanos(500));
  for (const GpuSlice& slice : slices) {
    measured.strings.push_back(slice.operation.name);
    measured.slices.push_back({slice.stream.name == "dp" ? std::uint16_t{1} : std::uint16_t{0},
                               {static_cast<std::uint32_t>(measured.strings.size() - 1)},
                               slice.start,
                               slice.end,
                               0});
  }
  ASSERT_EQ(Verify(measured), "");
  const auto comparison = CompareTraces(std::span(&predicted, 1), std::span(&measured, 1));
  ASSERT_TRUE(comparison.ok()) << comparison.error().Text();
  const TraceComparison& role = comparison->Worst();
  EXPECT_EQ(role.peak_error(), Bytes());
  ASSERT_EQ(role.operators.size(), 2u);
  for (const OperatorComparison& one : role.operators) {
    const bool gemm = one.name == "layer.wq.forward";
    EXPECT_EQ(one.predicted_count, gemm ? 2 : 1);
    EXPECT_EQ(one.measured_count, gemm ? 2 : 1);
    EXPECT_EQ(one.predicted, Nanos(70)) << one.name;
    EXPECT_EQ(one.measured, Nanos(gemm ? 80 : 70)) << one.name;
  }
}

}  // namespace
}  // namespace tidemark::gpu_trace_test
