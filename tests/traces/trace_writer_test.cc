// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/trace_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "base/file.h"
#include "tests/reports/sample_report.h"
#include "tests/traces/expect_equal.h"
#include "traces/formats/format.h"

namespace tidemark::trace_writer_test {
namespace {

using testing::HasSubstr;

/// What a trace was after `events` memory events: phases and the step that are still open end where they begin, and the
/// length of the step is not known.
Trace Early(const Trace& whole, std::size_t events) {
  Trace trace = whole;
  trace.memory.resize(events);
  const Nanos now = events == 0 ? Nanos() : trace.memory.back().issue;
  std::erase_if(trace.spans, [&](const Span& span) { return span.begin > now; });
  for (Span& span : trace.spans) {
    span.end = span.end > now ? span.begin : span.end;
  }
  std::erase_if(trace.steps, [&](const StepMark& step) { return step.begin > now; });
  for (StepMark& step : trace.steps) {
    step.end = step.end > now ? step.begin : step.end;
  }
  std::size_t slices = 0;
  while (slices < trace.slices.size() && trace.slices[slices].end <= now) {
    ++slices;
  }
  trace.slices.resize(slices);
  trace.tensors.resize(1);
  for (const MemoryEvent& event : trace.memory) {
    if (event.tensor.index >= trace.tensors.size()) {
      trace.tensors.assign(whole.tensors.begin(), whole.tensors.begin() + event.tensor.index + 1);
    }
  }
  trace.step = Nanos();
  return trace;
}

Trace Whole(SampleSize size = {2, 3}) {
  Trace trace = SampleTrace(size).Make();
  trace.steps = {{"first", Nanos(), trace.step, 0}};
  trace.marks = {{"reduce", 7}};
  return trace;
}

/// Written as a run writes it: `stride` events at a time.
std::string Grown(const Trace& whole, std::size_t stride) {
  std::string file;
  TraceWriter writer([&](std::string_view bytes) {
    file += bytes;
    return Status(Done{});
  });
  for (std::size_t events = 0; events < whole.memory.size(); events += stride) {
    EXPECT_TRUE(writer.Append(Early(whole, events)));
  }
  EXPECT_TRUE(writer.Append(whole));
  EXPECT_TRUE(writer.Close());
  return file;
}

TEST(TraceWriter, aTraceThatGrowsReadsAsIfWrittenAtOnce) {
  const Trace whole = Whole();
  for (const std::size_t stride : {1U, 7U, 1000U}) {
    const Result<TraceFile> file = ReadTraces(Grown(whole, stride));
    ASSERT_TRUE(file) << file.error().Text();
    EXPECT_EQ(file->note, "");
    ASSERT_EQ(file->traces.size(), 1U);
    ExpectEqual(file->traces[0], whole);
  }
}

TEST(TraceWriter, writingWhatHasNotGrownWritesNothing) {
  std::size_t calls = 0, bytes = 0;
  TraceWriter writer([&](std::string_view more) {
    ++calls;
    bytes += more.size();
    return Status(Done{});
  });
  ASSERT_TRUE(writer.Append(Whole()));
  const std::size_t before = bytes;
  ASSERT_TRUE(writer.Append(Whole()));
  EXPECT_EQ(calls, 2U);
  EXPECT_EQ(bytes, before);
}

/// Where frames end: their lengths are the first four bytes of each, little endian, behind 17 bytes of magic and before
/// 8 bytes of head.
std::vector<std::size_t> FrameEnds(std::string_view file) {
  std::vector<std::size_t> ends = {17};
  while (ends.back() < file.size()) {
    std::size_t length = 0;
    for (std::size_t i = 0; i < 4; ++i) {
      length |= static_cast<std::size_t>(static_cast<unsigned char>(file[ends.back() + i])) << (8 * i);
    }
    ends.push_back(ends.back() + 8 + length);
  }
  return ends;
}

TEST(TraceWriter, cutAtAnyByteEveryWholeFrameIsReadAndTheFileSaysThatItIsCut) {
  const Trace whole = Whole();
  const std::string file = Grown(whole, 3);
  const std::vector<std::size_t> ends = FrameEnds(file);
  ASSERT_EQ(ends.back(), file.size());
  ASSERT_GT(ends.size(), whole.memory.size() / 3);
  std::size_t frames = 0, events_of_frames = 0;
  for (std::size_t length = 0; length < file.size(); ++length) {
    while (frames + 1 < ends.size() && ends[frames + 1] <= length) {
      ++frames;
    }
    const Result<TraceFile> read = ReadTraces(std::string_view(file).substr(0, length));
    ASSERT_EQ(read.ok(), frames > 0) << length;  // the first frame is the header
    if (!read) {
      continue;
    }
    EXPECT_THAT(read->note, HasSubstr("cut off"));
    const Trace& trace = read->traces.at(0);
    const std::size_t events = trace.memory.size() + trace.slices.size();
    if (ends[frames] == length) {
      EXPECT_GE(events, events_of_frames);
      events_of_frames = events;
    }
    ASSERT_EQ(events, events_of_frames) << "cut at " << length << ", within frame " << frames;
    for (std::size_t i = 0; i < trace.memory.size(); ++i) {
      ASSERT_EQ(trace.memory[i].issue, whole.memory[i].issue);
      ASSERT_EQ(trace.memory[i].tensor, whole.memory[i].tensor);
    }
  }
  EXPECT_EQ(events_of_frames, whole.memory.size() + whole.slices.size());
}

TEST(TraceWriter, aKilledProcessLeavesAFileThatCanBeRead) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("tidemark_writer_" + std::to_string(getpid()) + ".trace")).string();
  const Trace whole = Whole({16, 12});
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    auto writer = TraceWriter::Open(path);
    for (std::size_t events = 0;; events = std::min(events + 5, whole.memory.size() / 2)) {
      const bool fine = writer && writer->Append(Early(whole, events));
      if (!fine || (events == 100 && write(pipe_ends[1], "x", 1) != 1)) {
        _exit(1);
      }
    }
  }
  char told = 0;
  ASSERT_EQ(read(pipe_ends[0], &told, 1), 1);
  kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFSIGNALED(status));
  const Result<std::string> bytes = ReadBinaryFile(path, std::int64_t{1} << 30);
  std::filesystem::remove(path);
  ASSERT_TRUE(bytes);
  const Result<TraceFile> file = ReadTraces(*bytes);
  ASSERT_TRUE(file) << file.error().Text();
  EXPECT_THAT(file->note, HasSubstr("cut off"));
  EXPECT_GE(file->traces.at(0).memory.size(), 100U);
}

TEST(TraceWriter, aFullDiskIsAnErrorThatStays) {
  auto writer = TraceWriter::Open("/dev/full");
  ASSERT_TRUE(writer);
  const Status first = writer->Append(Whole());
  ASSERT_FALSE(first);
  EXPECT_EQ(first.error().code, ErrorCode::machine_cannot);
  EXPECT_THAT(first.error().hint, HasSubstr("full"));
  EXPECT_FALSE(writer->Append(Whole()));
  EXPECT_FALSE(writer->Close());
}

TEST(TraceWriter, aPlaceThatCannotBeWrittenIsNamed) {
  const auto writer = TraceWriter::Open("/nowhere/at/all.trace");
  ASSERT_FALSE(writer);
  EXPECT_EQ(writer.error().where, "/nowhere/at/all.trace");
}

}  // namespace
}  // namespace tidemark::trace_writer_test
