// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/reports/sample_report.h"
#include "traces/formats/format.h"

namespace tidemark {
namespace {

using testing::HasSubstr;

std::string Written(const std::vector<Trace>& traces) { return *(*FindTraceFormat("tidemark"))->Write(traces); }

std::vector<Trace> TwoRoles() {
  std::vector<Trace> traces = {SampleTrace({2, 3}).Make(), SampleTrace({1, 2}).Make()};
  traces[0].job_yaml = "network: llama-3-8b\n";
  traces[0].memory[5].address = 0x7f00deadbeef;
  traces[0].tensors[0].sharding = "1/2 over tp, 1/8 over dp";
  traces[0].marks = {{"reduce", 7}, {"gather", 11}};
  traces[1].role = "stage 1";
  traces[1].device_low = Bytes(3);
  traces[1].device_expected = Bytes(5);
  traces[1].device_high = Bytes(8);
  traces[1].lints = {{"wrong-gradient", "error", "its window is short", "rescale it", "wrong-divisor"},
                     {"other", "note", "", ""}};
  traces[1].steps = {{"first", Nanos(0), Nanos(7), 0}, {"second", Nanos(7), Nanos(9), 20}};
  return traces;
}

void ExpectEqual(const Trace& a, const Trace& b) {
  EXPECT_EQ(a.origin, b.origin);
  EXPECT_EQ(a.tool_version, b.tool_version);
  EXPECT_EQ(a.title, b.title);
  EXPECT_EQ(a.job_yaml, b.job_yaml);
  EXPECT_EQ(a.role, b.role);
  EXPECT_EQ(a.ranks, b.ranks);
  EXPECT_EQ(a.device_memory, b.device_memory);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.strings, b.strings);
  ASSERT_EQ(a.tensors.size(), b.tensors.size());
  for (std::size_t i = 0; i < a.tensors.size(); ++i) {
    EXPECT_EQ(a.tensors[i].name, b.tensors[i].name);
    EXPECT_EQ(a.tensors[i].category, b.tensors[i].category);
    EXPECT_EQ(a.tensors[i].dtype, b.tensors[i].dtype);
    EXPECT_EQ(a.tensors[i].bytes, b.tensors[i].bytes);
    EXPECT_EQ(a.tensors[i].sharding, b.tensors[i].sharding);
  }
  ASSERT_EQ(a.streams.size(), b.streams.size());
  for (std::size_t i = 0; i < a.streams.size(); ++i) {
    EXPECT_EQ(a.streams[i].name, b.streams[i].name);
    EXPECT_EQ(a.streams[i].kind, b.streams[i].kind);
  }
  ASSERT_EQ(a.marks.size(), b.marks.size());
  for (std::size_t i = 0; i < a.marks.size(); ++i) {
    EXPECT_EQ(a.marks[i].name, b.marks[i].name);
    EXPECT_EQ(a.marks[i].events, b.marks[i].events);
  }
  ASSERT_EQ(a.spans.size(), b.spans.size());
  for (std::size_t i = 0; i < a.spans.size(); ++i) {
    EXPECT_EQ(a.spans[i].phase, b.spans[i].phase);
    EXPECT_EQ(a.spans[i].microbatch, b.spans[i].microbatch);
    EXPECT_EQ(a.spans[i].side, b.spans[i].side);
    EXPECT_EQ(a.spans[i].begin, b.spans[i].begin);
    EXPECT_EQ(a.spans[i].end, b.spans[i].end);
  }
  ASSERT_EQ(a.memory.size(), b.memory.size());
  for (std::size_t i = 0; i < a.memory.size(); ++i) {
    const MemoryEvent& left = a.memory[i];
    const MemoryEvent& right = b.memory[i];
    EXPECT_EQ(left.alloc, right.alloc);
    EXPECT_EQ(left.tensor, right.tensor);
    EXPECT_EQ(left.index0, right.index0);
    EXPECT_EQ(left.index1, right.index1);
    EXPECT_EQ(left.issue, right.issue);
    EXPECT_EQ(left.ready, right.ready);
    EXPECT_EQ(left.address, right.address);
    EXPECT_EQ(left.span, right.span);
    EXPECT_EQ(left.allocator_bytes, right.allocator_bytes);
    EXPECT_EQ(left.reserved_bytes, right.reserved_bytes);
  }
  EXPECT_EQ(a.device_low, b.device_low);
  EXPECT_EQ(a.lints, b.lints);
  EXPECT_EQ(a.device_expected, b.device_expected);
  EXPECT_EQ(a.device_high, b.device_high);
  ASSERT_EQ(a.steps.size(), b.steps.size());
  for (std::size_t i = 0; i < a.steps.size(); ++i) {
    EXPECT_EQ(a.steps[i].kind, b.steps[i].kind);
    EXPECT_EQ(a.steps[i].begin, b.steps[i].begin);
    EXPECT_EQ(a.steps[i].end, b.steps[i].end);
    EXPECT_EQ(a.steps[i].memory_begin, b.steps[i].memory_begin);
  }
  ASSERT_EQ(a.slices.size(), b.slices.size());
  for (std::size_t i = 0; i < a.slices.size(); ++i) {
    EXPECT_EQ(a.slices[i].stream, b.slices[i].stream);
    EXPECT_EQ(a.slices[i].name, b.slices[i].name);
    EXPECT_EQ(a.slices[i].start, b.slices[i].start);
    EXPECT_EQ(a.slices[i].end, b.slices[i].end);
  }
}

TEST(TidemarkFormat, readsBackWhatItWrote) {
  const std::vector<Trace> traces = TwoRoles();
  const Result<TraceFile> file = ReadTraces(Written(traces));
  ASSERT_TRUE(file) << file.error().Text();
  EXPECT_EQ(file->note, "");
  ASSERT_EQ(file->traces.size(), 2U);
  ExpectEqual(file->traces[0], traces[0]);
  ExpectEqual(file->traces[1], traces[1]);
}

TEST(TidemarkFormat, readsBackATraceOfManyRecords) {
  const std::vector<Trace> traces = {SampleTrace({64, 24}).Make()};  // 64 x 24 x 6 events: several chunks of 4096
  ASSERT_GT(traces[0].memory.size(), 8192U);
  const Result<TraceFile> file = ReadTraces(Written(traces));
  ASSERT_TRUE(file) << file.error().Text();
  ExpectEqual(file->traces[0], traces[0]);
}

TEST(TidemarkFormat, sameTracesGiveTheSameBytes) { EXPECT_EQ(Written(TwoRoles()), Written(TwoRoles())); }

TEST(TidemarkFormat, aFileCutAnywhereReadsAsAPrefixOrSaysWhatIsMissing) {
  const std::vector<Trace> traces = TwoRoles();
  const std::string whole = Written(traces);
  std::size_t last = 0;
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const Result<TraceFile> file = ReadTraces(std::string_view(whole).substr(0, length));
    if (!file) {
      EXPECT_EQ(file.error().code, ErrorCode::bad_input);
      EXPECT_EQ(last, 0U) << "cut at " << length << ": a longer prefix must not hold less";
      continue;
    }
    EXPECT_THAT(file->note, HasSubstr("cut off"));
    std::size_t events = 0;
    for (const Trace& trace : file->traces) {
      EXPECT_EQ(Verify(trace), "");
      events += trace.memory.size() + trace.slices.size();
    }
    EXPECT_GE(events, last);
    last = events;
  }
  // All but the closing record was there at the end.
  EXPECT_EQ(last,
            traces[0].memory.size() + traces[0].slices.size() + traces[1].memory.size() + traces[1].slices.size());
}

TEST(TidemarkFormat, aFlippedBitIsNoticedAndNeverCrashes) {
  const std::string whole = Written(TwoRoles());
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    std::string damaged = whole;
    const std::size_t at = random() % damaged.size();
    damaged[at] = static_cast<char>(damaged[at] ^ (1 << (random() % 8)));
    const Result<TraceFile> file = ReadTraces(damaged);
    EXPECT_TRUE(!file || !file->note.empty()) << "flipped a bit of byte " << at;
  }
}

TEST(TidemarkFormat, refusesANewerVersionWithAHint) {
  const Result<TraceFile> file = ReadTraces("TIDEMARK TRACE 2\nanything");
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().hint, HasSubstr("newer"));
}

TEST(TraceFormats, aFileOfNoKnownFormatIsRefusedWithTheList) {
  const Result<TraceFile> file = ReadTraces("{\"hello\": 1}");
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().hint, HasSubstr("tidemark"));
}

TEST(TraceFormats, aMisspelledNameFindsItsNeighbour) {
  const auto format = FindTraceFormat("tidemrk");
  ASSERT_FALSE(format);
  EXPECT_THAT(format.error().hint, HasSubstr("tidemark"));
}

}  // namespace
}  // namespace tidemark
