// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "tests/reports/sample_report.h"
#include "tests/traces/kineto_sample.h"
#include "tests/traces/trace_script.h"
#include "traces/formats/format.h"
#include "traces/place.h"

namespace tidemark::format_chrome_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const Trace& Of(const TraceFile& file, const std::string& role) {
  const auto found =
      std::find_if(file.traces.begin(), file.traces.end(), [&](const Trace& trace) { return trace.role == role; });
  EXPECT_NE(found, file.traces.end()) << role;
  return *found;
}

TraceFile Read(const std::string& text) {
  Result<TraceFile> file = ReadTraces(text);
  EXPECT_TRUE(file) << (file ? "" : file.error().Text());
  return file ? std::move(*file) : TraceFile();
}

/// One line for each memory event.
std::vector<std::string> Told(const Trace& trace) {
  std::vector<std::string> lines;
  for (std::size_t i = 0; i < trace.memory.size(); ++i) {
    const MemoryEvent& event = trace.memory[i];
    const TraceTensor& tensor = trace.tensors[event.tensor.index];
    lines.push_back(std::to_string(event.issue.count()) + (event.alloc ? " + " : " - ") +
                    std::to_string(tensor.bytes.count()) + " " + tensor.name + "[" + std::to_string(event.index0) +
                    "] in '" + PlaceOf(trace, i).phase + "' " + std::to_string(PlaceOf(trace, i).microbatch) + " of " +
                    std::to_string(PlaceOf(trace, i).step));
  }
  return lines;
}

/// An event of Kineto's list.
std::string Memory(std::int64_t ts, std::uint64_t address, std::int64_t n_bytes, const std::string& more = "") {
  return R"({"ph":"i","name":"[memory]","pid":1,"tid":1,"ts":)" + std::to_string(ts) + R"(,"args":{"Addr":)" +
         std::to_string(address) + R"(,"Bytes":)" + std::to_string(n_bytes) + R"(,"Device Type":0,"Device Id":-1)" +
         more + "}}";
}

TEST(ChromeFormat, blocksOfADeviceComeInTheOrderOfTimeWithWhoAllocatesThemAndTheirPhase) {
  const TraceFile file = Read(KinetoSample());
  EXPECT_EQ(file.format, "chrome");
  EXPECT_EQ(file.note, "");
  ASSERT_EQ(file.traces.size(), 2U);
  const Trace& trace = Of(file, "cuda:0");
  // Before the first event 5632 - 512 bytes were allocated, of which 1024 are freed later.
  EXPECT_THAT(Told(trace), ElementsAre("0 + 1024 alive before the recording[0] in '' -1 of -1",
                                       "0 + 4096 held throughout the recording[0] in '' -1 of -1",
                                       "15125 + 512 layer.aten::linear[7] in 'forward' 0 of 0",
                                       "61250 + 2048 aten::mm[0] in 'backward' 0 of 0",
                                       "64000 - 1024 alive before the recording[0] in 'backward' 0 of 0"));
  EXPECT_EQ(trace.memory[3].allocator_bytes, Bytes(7680));
  EXPECT_EQ(trace.memory[3].reserved_bytes, Bytes(20971520));
  EXPECT_EQ(trace.memory[3].address, 139637976727552U);
  EXPECT_EQ(trace.tensors[trace.memory[3].tensor.index].category, Category::unknown);
  EXPECT_EQ(trace.memory[1].allocator_bytes, Bytes(5120));
  EXPECT_EQ(Of(file, "cpu").memory.size(), 1U);
}

TEST(ChromeFormat, stepsAndAnnotationsKeepTheirTimesAndText) {
  const TraceFile file = Read(KinetoSample());
  const Trace& trace = Of(file, "cuda:0");
  ASSERT_EQ(trace.steps.size(), 2U);
  EXPECT_EQ(trace.steps[0].end, Nanos(100500));  // where the next one begins
  EXPECT_EQ(trace.steps[1].end, Nanos(200000));
  EXPECT_EQ(trace.steps[0].memory_begin, 2U);
  EXPECT_EQ(trace.steps[1].memory_begin, 5U);
  EXPECT_EQ(trace.step, Nanos(200000));
  ASSERT_EQ(trace.spans.size(), 3U);
  EXPECT_EQ(trace.spans[0].phase, "forward");
  EXPECT_EQ(trace.spans[0].begin, Nanos(10001));
  EXPECT_EQ(trace.spans[0].end, Nanos(40001));
  EXPECT_EQ(trace.spans[1].phase, "layer 7");
  EXPECT_EQ(trace.spans[1].microbatch, 0);  // of what surrounds it
  EXPECT_EQ(trace.spans[2].phase, "backward");
}

TEST(ChromeFormat, kernelsAndCopiesAreSlicesOfTheirStreams) {
  const TraceFile file = Read(KinetoSample());
  const Trace& trace = Of(file, "cuda:0");
  ASSERT_EQ(trace.slices.size(), 3U);
  EXPECT_EQ(trace.slices[1].start, Nanos(20000));
  EXPECT_EQ(trace.slices[1].end, Nanos(24096));
  EXPECT_EQ(trace.strings[trace.slices[1].name.index], "ampere_sgemm");
  const auto kind = [&](std::size_t slice) { return trace.streams[trace.slices[slice].stream].kind; };
  EXPECT_EQ(kind(0), "copy");
  EXPECT_EQ(kind(1), "compute");
  EXPECT_EQ(kind(2), "collective");
  EXPECT_TRUE(Of(file, "cpu").slices.empty());
  ASSERT_NE(trace.slices[1].span, kNoSpan);  // launched at 13 us, by the correlation of both
  EXPECT_EQ(trace.spans[trace.slices[1].span].phase, "forward");
  EXPECT_EQ(trace.slices[2].span, kNoSpan);
}

TEST(ChromeFormat, runningOutOfMemoryIsAMark) {
  const TraceFile file = Read(KinetoSample());
  const Trace& trace = Of(file, "cuda:0");
  ASSERT_EQ(trace.marks.size(), 1U);
  EXPECT_EQ(trace.marks[0].name, "out of memory");
  EXPECT_EQ(trace.marks[0].events, 5U);
}

TEST(ChromeFormat, aFreeOfUnknownSizeFreesWhatIsThereAndADoubleOneNothing) {
  const TraceFile file = Read("[" + Memory(1, 8, 100) + "," + Memory(2, 8, 0) + "," + Memory(3, 8, -100) + "," +
                              Memory(4, 9, 0) + "," + Memory(5, 8, 300) + "]");
  EXPECT_THAT(Told(file.traces.at(0)), ElementsAre("0 + 100 outside of operators[0] in '' -1 of -1",
                                                   "1000 - 100 outside of operators[0] in '' -1 of -1",
                                                   "4000 + 300 outside of operators[0] in '' -1 of -1"));
}

TEST(ChromeFormat, aProcessorsProfileThatBeginsLateSaysWhatItCannotTell) {
  const auto assumed = [](const std::string& events) { return Read("[" + events + "]").traces.at(0).assumed; };
  EXPECT_THAT(assumed(Memory(1, 8, 100) + "," + Memory(2, 8, -100)), ElementsAre());
  const std::string late = Memory(1, 8, 100) + "," + Memory(2, 16, -100);
  EXPECT_THAT(assumed(late), ElementsAre(HasSubstr("before the recording")));
  std::string device = late;  // whose totals count from the process's begin
  for (std::size_t at = 0; (at = device.find("\"Device Type\":0", at)) != std::string::npos; ++at) {
    device.replace(at, 15, "\"Device Type\":1");
  }
  EXPECT_THAT(assumed(device), ElementsAre());
}

TEST(ChromeFormat, aSizeThatIsNoWholeNumberOfBytesIsCountedAndNoFree) {
  const auto memory = [](const std::string& address, const std::string& bytes) {
    return R"({"ph":"i","name":"[memory]","ts":1,"args":{"Device Type":0,"Addr":)" + address + bytes + "}}";
  };
  const TraceFile file =
      Read("[" + memory("1", R"(,"Bytes":1000)") + "," + memory("2", R"(,"Bytes":2e3)") + "," +
           memory("1", R"(,"Bytes":2000.5)") + "," + memory("1", R"(,"Bytes":18446744073709551615)") + "," +
           memory("1", R"(,"Bytes":"5000")") + "," + memory("1", "") + "]");
  EXPECT_THAT(Told(file.traces.at(0)), ElementsAre(HasSubstr("+ 1000 "), HasSubstr("+ 2000 ")));
  EXPECT_THAT(file.note, HasSubstr("4 events lack"));
}

TEST(ChromeFormat, anAddressThatIsAllocatedAgainWasFreedInBetween) {
  const TraceFile file = Read("[" + Memory(1, 8, 100) + "," + Memory(2, 8, 200) + "," + Memory(3, 8, -200) + "]");
  EXPECT_EQ(file.traces.at(0).memory.size(), 4U);
  EXPECT_EQ(Verify(file.traces.at(0)), "");
}

TEST(ChromeFormat, processesOnOneDeviceHaveAddressesOfTheirOwn) {
  const std::string first = Memory(1, 4096, 1000);
  std::string second = Memory(2, 4096, 1000);
  second.replace(second.find("\"pid\":1"), 7, "\"pid\":2");
  const TraceFile merged = Read(R"({"traceEvents":[)" + first + "," + second + "," + Memory(3, 4096, -1000) + "]}");
  ASSERT_EQ(merged.traces.size(), 2u);
  EXPECT_EQ(merged.traces[0].role, "cpu of process 1");
  EXPECT_EQ(merged.traces[1].role, "cpu of process 2");
  EXPECT_EQ(merged.traces[0].memory.size(), 2u);
  EXPECT_EQ(merged.traces[1].memory.size(), 1u);
}

TEST(ChromeFormat, ofEqualInstantsTheEventIndexDecides) {
  const TraceFile file =
      Read("[" + Memory(1, 8, -100, R"(,"Ev Idx":6)") + "," + Memory(1, 8, 100, R"(,"Ev Idx":5)") + "]");
  ASSERT_EQ(file.traces.at(0).memory.size(), 2U);
  EXPECT_TRUE(file.traces[0].memory[0].alloc);
}

TEST(ChromeFormat, timesBeforeTheFirstEventAreNumbersToo) {
  Trace trace = SampleTrace({1, 2}).Make();
  trace.spans[0].begin = Nanos(-1500);
  trace.slices[0].start = Nanos(-5);
  const Result<std::string> text = (*FindTraceFormat("chrome"))->Write(std::vector{trace});
  ASSERT_TRUE(text) << text.error().Text();
  EXPECT_THAT(*text, HasSubstr("\"ts\":-1.500,"));
  EXPECT_THAT(*text, HasSubstr("\"ts\":-0.005,"));
  const Trace back = Read(*text).traces.at(0);
  EXPECT_EQ(back.spans[0].end - back.spans[0].begin, trace.spans[0].end - trace.spans[0].begin);
}

TEST(ChromeFormat, aNameOfMegabytesIsCut) {
  const std::string name(std::size_t{1} << 20, 'x');
  std::string events;
  for (std::int64_t i = 1; i <= 100; ++i) {
    events += (i == 1 ? "" : ",") + Memory(i, static_cast<std::uint64_t>(512 * i), 512 * i);
  }
  const std::string op = R"({"ph":"X","cat":"cpu_op","pid":1,"tid":1,"ts":0,"dur":1000,"name":")" + name + "\"},";
  const Trace trace = Read(R"({"traceEvents":[)" + op + events + "]}").traces.at(0);
  ASSERT_EQ(trace.tensors.size(), 100U);
  EXPECT_LT(trace.tensors[0].name.size(), 2000U);
}

TEST(ChromeFormat, cutAnywhereItReadsAsAPrefixOrSaysWhatIsMissing) {
  const std::string whole = KinetoSample();
  std::size_t last = 0;
  for (std::size_t length = 0; length < whole.size() - 1; ++length) {
    const Result<TraceFile> file = ReadTraces(std::string_view(whole).substr(0, length));
    if (!file) {
      EXPECT_EQ(file.error().code, ErrorCode::bad_input);
      EXPECT_EQ(last, 0U) << "cut at " << length << ": a longer prefix must not hold less";
      continue;
    }
    EXPECT_THAT(file->note, HasSubstr("cut off after"));
    std::size_t events = 0;
    for (const Trace& trace : file->traces) {
      EXPECT_EQ(Verify(trace), "");
      events += trace.slices.size();
      events += static_cast<std::size_t>(std::count_if(trace.memory.begin(), trace.memory.end(),
                                                       [](const MemoryEvent& event) { return event.span != kNoSpan; }));
    }
    EXPECT_GE(events, last);
    last = events;
  }
  EXPECT_EQ(last, 3U + 3U + 1U);  // slices, blocks of the GPU, blocks of the host
}

TEST(ChromeFormat, damageInTheMiddleIsASentenceWithItsPlace) {
  std::string text = KinetoSample();
  text[text.find("aten::linear") + 30] = '\x01';
  const Result<TraceFile> file = ReadTraces(text);
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().message, HasSubstr("cannot be part of it, after 5 events"));
}

TEST(ChromeFormat, aProfileWithoutMemorySaysHowToRecordIt) {
  const Result<TraceFile> file =
      ReadTraces(R"({"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a","ts":1,"dur":2,"pid":1,"tid":1}]})");
  ASSERT_FALSE(file);
  EXPECT_THAT(file.error().hint, HasSubstr("profile_memory=True"));
}

TEST(ChromeFormat, numbersBeyondReasonAreRefusedOrLeftOut) {
  const std::string large = std::to_string(std::int64_t{1} << 62);
  const Result<TraceFile> overflow =
      ReadTraces("[" + Memory(1, 8, std::int64_t{1} << 62) + "," + Memory(2, 9, std::int64_t{1} << 62) + "]");
  ASSERT_FALSE(overflow);
  EXPECT_THAT(overflow.error().message, HasSubstr("2^62 bytes"));
  EXPECT_THAT(
      Read("[" + Memory(1, 8, 5) + R"(,{"ph":"X","cat":"kernel","name":"k","ts":)" + large + R"(,"dur":1}])").note,
      HasSubstr("1 events lack"));
}

/// Sizes with their signs, as they follow each other.
std::vector<std::int64_t> Sizes(const Trace& trace) {
  std::vector<std::int64_t> sizes;
  for (const MemoryEvent& event : trace.memory) {
    sizes.push_back((event.alloc ? 1 : -1) * trace.tensors[event.tensor.index].bytes.count());
  }
  return sizes;
}

/// What ran where, but for the host, of which no device tells.
std::vector<std::string> DeviceSlices(const Trace& trace) {
  std::vector<std::string> slices;
  for (const Slice& slice : trace.slices) {
    if (const TraceStream& stream = trace.streams[slice.stream]; stream.kind != "host") {
      slices.push_back(std::to_string(slice.start.count()) + "-" + std::to_string(slice.end.count()) + " " +
                       trace.strings[slice.name.index] + " on " + stream.name);
    }
  }
  std::sort(slices.begin(), slices.end());
  return slices;
}

void ExpectRoundTrip(const std::vector<Trace>& traces) {
  const Result<std::string> text = (*FindTraceFormat("chrome"))->Write(traces);
  ASSERT_TRUE(text);
  const TraceFile file = Read(*text);
  ASSERT_EQ(file.traces.size(), traces.size());
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const Trace& a = traces[i];
    const Trace& b = file.traces[i];
    EXPECT_EQ(Sizes(a), Sizes(b));
    EXPECT_EQ(b.origin, traces[0].origin);
    EXPECT_EQ(a.steps.size(), b.steps.size());
    EXPECT_EQ(DeviceSlices(a), DeviceSlices(b));
    ASSERT_EQ(a.spans.size(), b.spans.size());
    for (std::size_t s = 0; s < a.spans.size(); ++s) {
      EXPECT_EQ(a.spans[s].phase, b.spans[s].phase);
      EXPECT_EQ(a.spans[s].microbatch, b.spans[s].microbatch);
      EXPECT_EQ(a.spans[s].side, b.spans[s].side);
      EXPECT_EQ(a.spans[s].begin, b.spans[s].begin);
      EXPECT_EQ(a.spans[s].end, b.spans[s].end);
    }
    for (std::size_t e = 0; e < a.memory.size(); ++e) {
      const TraceTensor& left = a.tensors[a.memory[e].tensor.index];
      const TraceTensor& right = b.tensors[b.memory[e].tensor.index];
      ASSERT_EQ(left.name, right.name);
      ASSERT_EQ(left.category, right.category);
      ASSERT_EQ(left.dtype, right.dtype);
      ASSERT_EQ(a.memory[e].issue, b.memory[e].issue);
    }
  }
}

TEST(ChromeFormat, readsBackTheTracesOfTwoRoles) {
  std::vector<Trace> traces = {SampleTrace({2, 3}).Make(), SampleTrace({1, 2}).Make()};
  traces[0].spans[0].side = "query";
  traces[1].steps = {{"first", Nanos(0), Nanos(7), 0}, {"second", Nanos(7), Nanos(9), 20}};
  ExpectRoundTrip(traces);
}

TEST(ChromeFormat, readsBackNamesThatAreNoPlainText) {
  ExpectRoundTrip({Play({Begun("a \"quoted\"\nphase \\", 3), Allocated("tensor \"w\"\t", 7), Allocated("w", 7, 1),
                         Freed("w", 1), Ended(), Freed("tensor \"w\"\t")})});
}

TEST(ChromeFormat, sameTracesGiveTheSameBytes) {
  const std::vector<Trace> traces = {SampleTrace({2, 3}).Make()};
  EXPECT_EQ(*(*FindTraceFormat("chrome"))->Write(traces), *(*FindTraceFormat("chrome"))->Write(traces));
}

}  // namespace
}  // namespace tidemark::format_chrome_test
