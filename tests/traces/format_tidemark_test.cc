// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/reports/sample_report.h"
#include "tests/traces/expect_equal.h"
#include "traces/formats/format.h"

namespace tidemark::format_tidemark_test {
namespace {

using testing::HasSubstr;

std::string Written(const std::vector<Trace>& traces) { return *(*FindTraceFormat("tidemark"))->Write(traces); }

std::vector<Trace> TwoRoles() {
  std::vector<Trace> traces = {SampleTrace({2, 3}).Make(), SampleTrace({1, 2}).Make()};
  traces[0].job_yaml = "network: llama-3-8b\n";
  traces[0].allocator = {"kind=torch-caching", "max_split_size=128MiB"};
  traces[0].memory[5].address = 0x7f00deadbeef;
  traces[0].memory[5].stream = 0;
  traces[0].memory.back().waits = !traces[0].memory.back().alloc;
  traces[0].tensors[0].sharding = "1/2 over tp, 1/8 over dp";
  traces[0].missing = "its end";
  traces[0].assumed = {"machine h100-sxm-80gb", "accumulation_steps"};
  traces[0].not_modelled = {"data loading"};
  traces[0].tensors[1].layers = {"query.layer", 1, 16};
  traces[0].marks = {{"reduce", 7}, {"gather", 11}};
  traces[1].clock = "cupti";
  traces[1].role = "stage 1";
  traces[1].usable_memory = Bytes(2);
  traces[1].device_low = Bytes(3);
  traces[1].device_expected = Bytes(5);
  traces[1].device_high = Bytes(8);
  traces[1].lints = {{"wrong-gradient", "error", "its window is short", "rescale it", "wrong-divisor"},
                     {"other", "note", "", ""}};
  traces[1].steps = {{"first", Nanos(0), Nanos(7), 0}, {"second", Nanos(7), Nanos(9), 20}};
  return traces;
}

TEST(TidemarkFormat, readsBackWhatItWrote) {
  const std::vector<Trace> traces = TwoRoles();
  const Result<TraceFile> file = ReadTraces(Written(traces));
  ASSERT_TRUE(file) << file.error().Text();
  EXPECT_EQ(file->note, "its end") << "what the first trace lacks";
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
}  // namespace tidemark::format_tidemark_test
