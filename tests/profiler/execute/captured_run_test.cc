// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tests/profiler/capture/built_capture.h"
#include "tests/profiler/execute/executed_job.h"
#include "tests/profiler/execute/lazy_device.h"
#include "traces/trace.h"

namespace tidemark::captured_run_test {
namespace {

/// Records two kernels for each operation when it is issued, 10 ns long and 10 ns apart, on the stream that has
/// `number` here; and before each one that is nobody's.
class EagerCapture final : public BuiltCapture {
 public:
  void Issuing(std::optional<std::uint64_t> operation) override {
    if (!operation) {
      return;
    }
    numbers_.insert(*operation);
    Kernel("poison");
    for (int i = 0; i < 2; ++i) {
      Kernel("gemm");
      records.operations.push_back({*operation, records.work.back().correlation});
    }
  }
  std::optional<std::uint32_t> NumberOf(void* stream) override { return LazyDevice::IndexOf(stream) + kOffset; }

  void StopAskingForSources() override { issued_with_sources_.emplace(numbers_.size()); }

  std::size_t issued() const { return numbers_.size(); }
  /// When nobody asked for sources any more; nothing: somebody still does.
  std::optional<std::size_t> issued_with_sources() const {
    return issued_with_sources_.empty() ? std::nullopt : std::optional(*issued_with_sources_.begin());
  }
  std::uint64_t last() const { return *numbers_.rbegin(); }

 private:
  static constexpr std::uint32_t kOffset = 7, kCompute = 1;

  void Kernel(const std::string& name) {
    GpuWorkRecord kernel;
    kernel.name = name;
    kernel.stream = kCompute + kOffset;
    kernel.correlation = ++correlation_;
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    kernel.start = Nanos(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count() + 20 * correlation_);
    kernel.end = kernel.start + Nanos(10);
    records.work.push_back(kernel);
  }

  std::uint32_t correlation_ = 0;
  std::set<std::uint64_t> numbers_;
  std::set<std::size_t> issued_with_sources_;
};

using Work = std::tuple<std::string, std::string, std::int64_t>;  ///< name, phase, microbatch

std::multiset<Work> WorkOf(const Trace& trace) {
  std::multiset<Work> work;
  for (const Slice& slice : trace.slices) {
    const bool phased = slice.span != kNoSpan;
    work.emplace(trace.strings[slice.name.index], phased ? trace.spans[slice.span].phase : "",
                 phased ? trace.spans[slice.span].microbatch : -1);
  }
  return work;
}

std::multiset<Work> Without(std::multiset<Work> work, const std::string& name) {
  for (auto one = work.begin(); one != work.end();) {
    one = std::get<0>(*one) == name ? work.erase(one) : std::next(one);
  }
  return work;
}

// The same operations in the same phases as by the clock of a host that does them one by one, whichever kernels they
// launched; of two steps.
TEST(ACapturedRun, HasASliceOfEachOperationInThePhaseThatIssuedIt) {
  const Job job = SmallJob("fsdp2-scatter-each");
  LazyDevice device(LazyDevice::First::lowest);
  EagerCapture capture;
  const RunOutcome captured = Executed(job, 2, {.device = &device, .capture = &capture});
  EXPECT_EQ(captured.clock, WorkClock::records);
  EXPECT_EQ(captured.trace.clock, "cupti");
  EXPECT_EQ(Verify(captured.trace), "");
  const std::multiset<Work> found = WorkOf(captured.trace), expected = WorkOf(Executed(job, 2).trace);
  ASSERT_FALSE(expected.empty());
  EXPECT_EQ(Without(found, "poison"), expected);
  EXPECT_EQ(found.count({"poison", "", -1}), capture.issued()) << "what no operation issued has no phase";
  EXPECT_EQ(capture.last(), capture.issued() - 1) << "operations are numbered through all steps";
  for (const Slice& slice : captured.trace.slices) {
    if (captured.trace.strings[slice.name.index] == "poison") {
      EXPECT_EQ(slice.end - slice.start, Nanos(10));
    }
  }
}

TEST(ACapturedRun, GivesItsStreamsTheProgramsNames) {
  LazyDevice device(LazyDevice::First::lowest);
  EagerCapture capture;
  const Job job = SmallJob("ddp-last");
  const LoweredSteps lowered(job, 1);
  const std::string compute = lowered.steps().front().program->roles.front().streams.at(1).name;
  const RunOutcome run = Executed(job, 1, {.device = &device, .capture = &capture});
  std::set<std::string> names;
  for (const Slice& slice : run.trace.slices) {
    names.insert(run.trace.streams[slice.stream].name);
  }
  EXPECT_TRUE(names.count(compute) == 1);
  EXPECT_TRUE(
      std::none_of(names.begin(), names.end(), [](const std::string& name) { return name.starts_with("gpu "); }));
}

// Beside another profiler kernels have no times of their own, and events do.
TEST(ACapturedRun, IsTimedByMarksWhereAnotherProfilerRecords) {
  const Job job = SmallJob("ddp-last");
  LazyDevice device(LazyDevice::First::lowest);
  EagerCapture capture;
  capture.other_profiler = "another profiler is attached";
  const RunOutcome run = Executed(job, 1, {.device = &device, .capture = &capture});
  EXPECT_EQ(run.clock, WorkClock::marks);
  EXPECT_EQ(run.trace.clock, "device_events");
  EXPECT_EQ(capture.issued(), 0U);
  EXPECT_EQ(WorkOf(run.trace), WorkOf(Executed(job, 1).trace));
}

// Of whole steps alone: nothing is asked of the capture, and memory is what it is.
TEST(ACapturedRun, TimesNoOperationWhereNobodyWantsThat) {
  const Job job = SmallJob("ddp-last");
  LazyDevice device(LazyDevice::First::lowest);
  EagerCapture capture;
  const RunOutcome run = Executed(job, 2, {.device = &device, .time_work = false, .capture = &capture});
  EXPECT_EQ(run.clock, WorkClock::nobody);
  EXPECT_EQ(run.trace.clock, "none");
  EXPECT_EQ(Verify(run.trace), "");
  EXPECT_EQ(capture.issued(), 0U);
  EXPECT_TRUE(run.trace.slices.empty());
  EXPECT_GT(run.steps.back().time, Nanos());
  EXPECT_FALSE(run.steps.back().recorded);
  EXPECT_EQ(run.reserved_peak, Executed(job, 2).reserved_peak);
}

// Libraries have taken their memory when a program runs again.
TEST(ACapturedRun, AsksForSourcesInTheFirstStepsOnly) {
  const Job job = SmallJob("ddp-last");
  EagerCapture three, four;
  LazyDevice of_three(LazyDevice::First::lowest), of_four(LazyDevice::First::lowest);
  Executed(job, 3, {.device = &of_three, .capture = &three});
  EXPECT_EQ(three.issued_with_sources(), std::nullopt) << "first, second, steady";
  Executed(job, 4, {.device = &of_four, .capture = &four});
  EXPECT_EQ(four.issued_with_sources(), three.issued());
}

TEST(ACapturedRun, TellsHowLongTheHostWaitedAndRecordingTook) {
  LazyDevice device(LazyDevice::First::lowest);
  EagerCapture capture;
  const auto later = [](std::int64_t at) { return Nanos(INT64_MAX / 2 + at); };  // than the step begins
  capture.records.waits = {{Nanos(100), Nanos(190)}, {later(100), later(130)}, {later(200), later(205)}};
  capture.records.overhead = {{Nanos(300), Nanos(390)}, {later(300), later(307)}};
  const RunOutcome run = Executed(SmallJob("ddp-last"), 2, {.device = &device, .capture = &capture});
  ASSERT_TRUE(run.steps[0].recorded && run.steps[1].recorded);
  EXPECT_EQ(run.steps[0].recorded->waits, 2);
  EXPECT_EQ(run.steps[0].recorded->waited, Nanos(35));
  EXPECT_EQ(run.steps[0].recorded->overhead, Nanos(7));
  EXPECT_EQ(run.steps[1].recorded->waits, 0);
}

TEST(ACapturedRun, OnTheProcessorIsTimedByItsClock) {
  EXPECT_EQ(Executed(SmallJob("ddp-last"), 1).clock, WorkClock::host);
}

}  // namespace
}  // namespace tidemark::captured_run_test
