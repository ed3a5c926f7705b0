// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <vector>

#include "tests/traces/trace_script.h"
#include "traces/formats/format.h"

// The fixtures, and what is expected of them, are made by tests/traces/snapshots/make_snapshots.py, which plays a small
// allocator of its own.

namespace tidemark::format_torch_snapshot_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;
using namespace std::string_literals;

std::string Fixture(const std::string& name) {
  std::ifstream in(TIDEMARK_TESTS "/traces/snapshots/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

TraceFile Read(const std::string& bytes) {
  Result<TraceFile> file = ReadTraces(bytes);
  EXPECT_TRUE(file) << file.error().Text();
  return file ? *file : TraceFile();
}

std::string Written(const std::vector<Trace>& traces) { return *(*FindTraceFormat("torch-snapshot"))->Write(traces); }

std::string Refused(const std::string& bytes) {
  const Result<TraceFile> file = ReadTraces(bytes);
  return file ? "read" : file.error().message;
}

/// Alive after each event: bytes that were asked for.
std::vector<std::int64_t> Alive(const Trace& trace) {
  std::vector<std::int64_t> totals;
  std::int64_t alive = 0;
  for (const MemoryEvent& event : trace.memory) {
    alive += (event.alloc ? 1 : -1) * trace.tensors[event.tensor.index].bytes.count();
    totals.push_back(alive);
  }
  return totals;
}

TEST(TorchSnapshotFormat, everyFixtureHoldsWhatItsMakerCounted) {
  std::ifstream expected(TIDEMARK_TESTS "/traces/snapshots/expected.txt");
  std::string name;
  int device = 0, rows = 0;
  for (std::int64_t moments, peak, end, reserved, waits;
       expected >> name >> device >> moments >> peak >> end >> reserved >> waits; ++rows) {
    SCOPED_TRACE(name + " " + std::to_string(device));
    const TraceFile file = Read(Fixture(name));
    ASSERT_EQ(file.format, "torch-snapshot");
    ASSERT_GT(file.traces.size(), static_cast<std::size_t>(device));
    const Trace& trace = file.traces[static_cast<std::size_t>(device)];
    EXPECT_EQ(trace.role, "cuda:" + std::to_string(device));
    EXPECT_THAT(trace.origin, StartsWith("torch snapshot"));
    EXPECT_EQ(Verify(trace), "");
    const std::vector<std::int64_t> alive = Alive(trace);
    EXPECT_EQ(static_cast<std::int64_t>(trace.memory.size()), moments);
    EXPECT_EQ(*std::max_element(alive.begin(), alive.end()), peak);
    EXPECT_EQ(alive.back(), end);
    Bytes most;
    std::int64_t held_up = 0;
    for (std::size_t i = 0; i < alive.size(); ++i) {
      const MemoryEvent& event = trace.memory[i];
      most = std::max(most, event.reserved_bytes);
      held_up += event.waits ? 1 : 0;
      EXPECT_GE(event.allocator_bytes.count(), alive[i]);
      EXPECT_LE(event.allocator_bytes, event.reserved_bytes);
      EXPECT_GE(event.ready, event.issue);
    }
    EXPECT_EQ(most.count(), reserved);
    EXPECT_EQ(held_up, waits);
  }
  EXPECT_GE(rows, 15);
}

TEST(TorchSnapshotFormat, whatWasAliveBeforeTheRecordingIsAllocatedFirst) {
  const Trace trace = Read(Fixture("ring.pickle")).traces[0];
  std::size_t before = 0;
  while (trace.memory[before].alloc && trace.memory[before].issue == Nanos(0)) {
    ++before;
  }
  // The weights and the buffer that is never freed; two activations and a gradient whose allocations were overwritten.
  EXPECT_GE(before, 4U);
  const std::vector<std::int64_t> alive = Alive(trace);
  EXPECT_GE(alive[before - 1], (3 << 20) + 1000 + 40 * 1024 + 700 * 1024);
  bool named = false;
  for (const TraceTensor& tensor : trace.tensors) {
    named = named || tensor.name == "before the recording";
  }
  EXPECT_TRUE(named) << "of a block that was freed only the size is known";
}

TEST(TorchSnapshotFormat, familiesAreThePlacesOfTheUsersOwnProgramAndSizes) {
  const Trace trace = Read(Fixture("new_4.pickle")).traces[0];
  std::set<std::int64_t> sizes;
  for (const TraceTensor& tensor : trace.tensors) {
    EXPECT_EQ(tensor.name, "model.py:120 forward");
    EXPECT_EQ(tensor.category, Category::unknown);
    EXPECT_EQ(tensor.dtype, DType::u8);
    EXPECT_TRUE(sizes.insert(tensor.bytes.count()).second) << "a family for each size";
  }
  EXPECT_TRUE(sizes.contains(5 * (1 << 20) + 17));
}

TEST(TorchSnapshotFormat, streamsStepsScopesAndFailuresAreKept) {
  const Trace trace = Read(Fixture("new_5.pickle")).traces[0];
  ASSERT_EQ(trace.streams.size(), 2U);
  EXPECT_EQ(trace.streams[0].name, "stream 0");
  EXPECT_EQ(trace.streams[1].name, "stream 1");
  ASSERT_EQ(trace.steps.size(), 2U);
  EXPECT_LE(trace.steps[0].end, trace.steps[1].begin);
  EXPECT_EQ(trace.steps[0].memory_begin, 4U) << "after the weights and the buffer that is never freed";
  ASSERT_EQ(trace.spans.size(), 2U) << "a backward pass in each step, which is no phase itself";
  EXPECT_EQ(trace.spans[0].phase, "backward");
  EXPECT_EQ(trace.spans[0].microbatch, -1);
  EXPECT_EQ(trace.memory[4].span, kNoSpan) << "the first event of the step";
  EXPECT_EQ(std::count_if(trace.memory.begin(), trace.memory.end(), [](const auto& event) { return event.span == 0; }),
            12)
      << "four times a gradient comes, an activation and it go";
  ASSERT_EQ(trace.marks.size(), 2U);
  EXPECT_EQ(trace.marks[0].name, "out of memory");
  EXPECT_EQ(trace.marks[0].events, 10U) << "the weights, the buffer, the side buffer and its free, four activations";
}

TEST(TorchSnapshotFormat, aFreeThatAnotherStreamHoldsUpWaitsUntilItsCompletion) {
  const Trace trace = Read(Fixture("new_2.pickle")).traces[0];
  const MemoryEvent& held_up = trace.memory[5];
  ASSERT_FALSE(held_up.alloc);
  EXPECT_TRUE(held_up.waits);
  // Each entry takes 7 us: four activations and a segment for them, the failure, the completion.
  EXPECT_EQ((held_up.ready - held_up.issue).count() % 7000, 0);
  EXPECT_GE(held_up.ready - held_up.issue, Nanos(6 * 7000));
  const MemoryEvent& last = trace.memory.back();
  EXPECT_TRUE(last.waits) << "pending at the end";
}

TEST(TorchSnapshotFormat, saysWhatTheFileDoesNotHave) {
  EXPECT_THAT(Read(Fixture("ring.pickle")).note, HasSubstr("ring buffer was full"));
  EXPECT_EQ(Read(Fixture("old.pickle")).traces[0].origin, "torch snapshot without times");
  EXPECT_THAT(Read(Fixture("expandable.pickle")).note, HasSubstr("unknown action 'quantum_alloc' were passed over: 1"));
  EXPECT_EQ(Read(Fixture("segments.pickle")).note, "");
}

TEST(TorchSnapshotFormat, aFileCutAnywhereIsASentence) {
  for (const std::string name : {"new_2.pickle", "ring.pickle", "old.pickle", "segments.pickle"}) {
    const std::string whole = Fixture(name);
    ASSERT_GT(whole.size(), 1000U);
    for (std::size_t length = 0; length < whole.size(); ++length) {
      const Result<TraceFile> file = ReadTraces(std::string_view(whole).substr(0, length));
      ASSERT_FALSE(file) << name << " cut at " << length;
      ASSERT_EQ(file.error().code, ErrorCode::bad_input);
      if (length > 20) {
        ASSERT_THAT(file.error().message, HasSubstr("the file is cut off")) << length;
      }
    }
  }
}

TEST(TorchSnapshotFormat, refusesWhatIsNoSnapshotInOneSentence) {
  EXPECT_THAT(Refused("\x80\x02}X\x01\x00\x00\x00"
                      "acos\nsystem\ns."s),
              HasSubstr("which is never done"));
  EXPECT_THAT(Refused("\x80\x02"
                      "cos\nsystem\n."s),
              HasSubstr("which is never done"));
  EXPECT_THAT(Refused("\x80\x02}."s), HasSubstr("a snapshot of PyTorch's memory was expected"));
  EXPECT_THAT(Refused("\x80\x02]."s), HasSubstr("the snapshot is empty"));
  EXPECT_THAT(Refused("\x80\x02](K\x01"
                      "e."s),
              HasSubstr("a segment, a dictionary with 'blocks', was expected"));
  EXPECT_THAT(Refused("\x80\x02}X\x0d\x00\x00\x00"
                      "device_traces](K\x01"
                      "es."s),
              HasSubstr("for each device"));
  EXPECT_THAT(Refused("\x80\x02}X\x0d\x00\x00\x00"
                      "device_traces](](K\x01"
                      "ees."s),
              HasSubstr("with an 'action'"));
}

/// {"device_traces": [[entry]]}, where the entry's items are given as opcodes.
std::string OneEntry(const std::string& items) {
  return "\x80\x02}X\x0d\x00\x00\x00"
         "device_traces](](}(X\x06\x00\x00\x00"
         "action"s +
         items + "uees."s;
}

TEST(TorchSnapshotFormat, refusesEntriesWithoutASizeOrWithAnImpossibleOne) {
  const std::string alloc =
                        "X\x05\x00\x00\x00"
                        "alloc"s,
                    addr =
                        "X\x04\x00\x00\x00"
                        "addrK\x07"s,
                    size =
                        "X\x04\x00\x00\x00"
                        "size"s;
  EXPECT_THAT(Refused(OneEntry(alloc)), HasSubstr("a whole number was expected for 'addr' of entry 0"));
  EXPECT_THAT(Refused(OneEntry(alloc + addr)), HasSubstr("a whole number was expected for 'size' of entry 0"));
  EXPECT_THAT(Refused(OneEntry(alloc + addr + size + "J\xff\xff\xff\xff")),
              HasSubstr("an impossible size of -1 bytes"));
  EXPECT_THAT(Refused(OneEntry(alloc + addr + size +
                               "X\x01\x00\x00\x00"
                               "5"s)),
              HasSubstr("'size' of entry 0"));
  EXPECT_THAT(Refused(OneEntry(alloc + addr + size + "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x40"s)),
              HasSubstr("an impossible size of 4611686018427387904 bytes"));
  EXPECT_EQ(Refused(OneEntry(alloc + addr + size + "K\x05")), "read");
}

TEST(TorchSnapshotFormat, refusesAListThatIsNamedAgainAndAgain) {
  std::string bytes =
      "\x80\x02}X\x0d\x00\x00\x00"
      "device_traces](]q\x00("s;
  bytes +=
      "}(X\x06\x00\x00\x00"
      "actionX\x08\x00\x00\x00snapshotuq\x01"s;
  for (int i = 0; i < 1000; ++i) {
    bytes += "h\x01";
  }
  bytes += "e";
  for (int i = 0; i < 100; ++i) {
    bytes += "h\x00"s;
  }
  bytes += "es.";
  EXPECT_THAT(Refused(bytes), HasSubstr("longer than the file"));
}

TEST(TorchSnapshotFormat, refusesMoreThanTheBytesOfTheWorld) {
  const std::string huge = "\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x10"s;  // 2^60
  const auto entry = [&](const std::string& address) {
    return "}(X\x06\x00\x00\x00"
           "actionX\x05\x00\x00\x00"
           "allocX\x04\x00\x00\x00"
           "addrK"s +
           address + "X\x04\x00\x00\x00size"s + huge + "u";
  };
  EXPECT_THAT(Refused("\x80\x02}X\x0d\x00\x00\x00"
                      "device_traces](]("s +
                      entry("\x01") + entry("\x02") + "ees."),
              HasSubstr("more than 2^60 bytes are alive"));
}

std::vector<Trace> Scripted() {
  Trace trace = Play({Begun("load"), Allocated("weights", 3 << 20, 0, Category::parameter), Ended(),
                      Begun("forward", 0), Allocated("layers.0.mlp", 5000, 0), Allocated("layers.0.mlp", 5000, 1),
                      Ended(), Begun("backward", 0), Allocated("gradient", 3 << 20, 0, Category::gradient),
                      Freed("layers.0.mlp", 1), Freed("layers.0.mlp", 0), Freed("gradient"), Ended()},
                     512);
  for (MemoryEvent& event : trace.memory) {  // far enough apart for a clock of microseconds
    event.issue = event.ready = event.issue * 1000;
  }
  for (Span& span : trace.spans) {
    span.begin = span.begin * 1000;
    span.end = span.end * 1000;
  }
  trace.streams = {{"host", "host"}, {"compute", "compute"}};
  for (MemoryEvent& event : trace.memory) {
    event.stream = 1;
  }
  return {trace};
}

TEST(TorchSnapshotFormat, readsBackTheTensorsPhasesAndTotalsThatItWrote) {
  const std::vector<Trace> traces = Scripted();
  const std::vector<Trace> back = Read(Written(traces)).traces;
  ASSERT_EQ(back.size(), 1U);
  ASSERT_EQ(back[0].memory.size(), traces[0].memory.size());
  for (std::size_t i = 0; i < back[0].memory.size(); ++i) {
    SCOPED_TRACE(i);
    const MemoryEvent& was = traces[0].memory[i];
    const MemoryEvent& is = back[0].memory[i];
    EXPECT_EQ(is.alloc, was.alloc);
    EXPECT_EQ(back[0].tensors[is.tensor.index].name, traces[0].tensors[was.tensor.index].name);
    EXPECT_EQ(back[0].tensors[is.tensor.index].bytes, traces[0].tensors[was.tensor.index].bytes);
    EXPECT_EQ(back[0].tensors[is.tensor.index].category, traces[0].tensors[was.tensor.index].category);
    EXPECT_EQ(is.reserved_bytes, was.reserved_bytes);
    EXPECT_EQ(is.allocator_bytes, was.allocator_bytes);
    EXPECT_EQ(is.issue, was.issue - traces[0].memory[0].issue);
    ASSERT_NE(is.span, kNoSpan);
    EXPECT_EQ(back[0].spans[is.span].phase, traces[0].spans[was.span].phase);
    EXPECT_EQ(back[0].spans[is.span].microbatch, traces[0].spans[was.span].microbatch);
  }
}

TEST(TorchSnapshotFormat, aFreeThatWaitsIsRequestedAndCompletedApart) {
  std::vector<Trace> traces = Scripted();
  MemoryEvent& held_up = traces[0].memory[4];
  ASSERT_FALSE(held_up.alloc);
  held_up.waits = true;
  held_up.ready = traces[0].memory[5].issue;
  const std::vector<Trace> back = Read(Written(traces)).traces;
  EXPECT_TRUE(back[0].memory[4].waits);
  EXPECT_EQ(back[0].memory[4].ready, back[0].memory[5].issue);
  EXPECT_FALSE(back[0].memory[5].waits);
}

TEST(TorchSnapshotFormat, requestsOfNoBytesAreLeftOutAsTheAllocatorNeverSeesThem) {
  const std::vector<Trace> traces = {Play({Allocated("nothing", 0), Allocated("something", 700), Freed("nothing")})};
  EXPECT_THAT(Alive(Read(Written(traces)).traces[0]), ElementsAre(700));
}

TEST(TorchSnapshotFormat, aDeviceStandsForEachTrace) {
  std::vector<Trace> traces = {Scripted()[0], Play({Allocated("other", 1 << 20)})};
  traces[1].role = "stage 1";
  traces[1].origin = "measured on cpu";
  const std::vector<Trace> back = Read(Written(traces)).traces;
  ASSERT_EQ(back.size(), 2U);
  EXPECT_EQ(back[0].role, "stage 0");
  EXPECT_EQ(back[1].role, "stage 1");
  EXPECT_EQ(back[1].origin, "measured on cpu");
  EXPECT_THAT(Alive(back[1]), ElementsAre(1 << 20));
}

TEST(TorchSnapshotFormat, whatWasReadFromASnapshotIsWrittenWithTheSameSizesAndTotals) {
  for (const std::string name : {"new_4.pickle", "ring.pickle", "old.pickle", "state.pickle", "expandable.pickle"}) {
    SCOPED_TRACE(name);
    const std::vector<Trace> traces = Read(Fixture(name)).traces;
    const std::vector<Trace> back = Read(Written(traces)).traces;
    ASSERT_EQ(back.size(), traces.size());
    for (std::size_t device = 0; device < traces.size(); ++device) {
      EXPECT_EQ(Alive(back[device]), Alive(traces[device]));
      for (std::size_t i = 0; i < traces[device].memory.size(); ++i) {
        EXPECT_EQ(back[device].memory[i].reserved_bytes, traces[device].memory[i].reserved_bytes) << i;
        EXPECT_EQ(back[device].memory[i].address, traces[device].memory[i].address) << i;
        EXPECT_EQ(back[device].memory[i].waits, traces[device].memory[i].waits) << i;
      }
    }
  }
}

TEST(TorchSnapshotFormat, sameTracesGiveTheSameBytes) { EXPECT_EQ(Written(Scripted()), Written(Scripted())); }

}  // namespace
}  // namespace tidemark::format_torch_snapshot_test
