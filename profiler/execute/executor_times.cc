// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "profiler/capture/gpu_records.h"
#include "profiler/capture/gpu_trace.h"
#include "profiler/execute/executor.h"

// When a stream was busy: by the host's clock where work is done when it is given, by what CUPTI records where there is
// a capture, else by marks around it.

namespace tidemark {

std::string_view Name(WorkClock clock) {
  switch (clock) {
    case WorkClock::host:
      return "host";
    case WorkClock::marks:
      return "device_events";
    case WorkClock::records:
      return "cupti";
    case WorkClock::nobody:
      return kUntimed;
  }
  return "";
}

WorkClock ClockOf(const Device& device, const ExecutorOptions& options) {
  if (device.is_synchronous()) {
    return WorkClock::host;
  }
  if (!options.time_work) {
    return WorkClock::nobody;
  }
  return options.capture != nullptr && options.capture->records_work() ? WorkClock::records : WorkClock::marks;
}

/// The host carries out an exchange that is not left to a stream, whatever the device records of its copies.
Executor::Started Executor::StartOn(StreamId stream, const std::string& name, const Communicator* group) {
  Started started{recorder_.Now(), recorder_.open_span(), clock_};
  if (clock_ == WorkClock::records && group != nullptr && !group->on_stream()) {
    started.clock = WorkClock::host;
  } else if (clock_ == WorkClock::records) {
    options_.capture->Issuing(first_issued_ + issued_.size());
    issued_.push_back({name, started.span});
  } else if (clock_ == WorkClock::marks) {
    started.mark = device_.MarkIn(stream.index);
  }
  return started;
}

void Executor::EndOn(StreamId id, const std::string& name, const Started& started) {
  const Stream& stream = program_->streams[id.index];
  switch (started.clock) {
    case WorkClock::host:
      recorder_.Busy(stream.name, Name(stream.kind), name, started.at, recorder_.Now(), started.span);
      break;
    case WorkClock::marks:
      timed_.push_back({id, name, started.span, started.mark, device_.MarkIn(id.index)});
      break;
    case WorkClock::records:
      options_.capture->Issuing(std::nullopt);
      break;
    case WorkClock::nobody:
      break;
  }
}

/// The device has come to an end.
void Executor::TakeTimes() {
  if (clock_ == WorkClock::records) {
    TakeRecordedTimes();
  }
  for (const Timed& timed : timed_) {
    const Stream& stream = program_->streams[timed.stream.index];
    const Nanos start = step_start_ + device_.Between(step_mark_, timed.start);
    recorder_.Busy(stream.name, Name(stream.kind), timed.name, start, start + device_.Between(timed.start, timed.end),
                   timed.span);
  }
  timed_.clear();
  device_.DropMarks();
}

/// The host's stream has no work of a program's; what the executor copies there is nobody's.
void Executor::TakeRecordedTimes() {
  GpuNames names{first_issued_, issued_, {}};
  for (std::size_t i = 0; i < program_->streams.size(); ++i) {
    const Stream& stream = program_->streams[i];
    if (const auto number = options_.capture->NumberOf(device_.StreamOf(static_cast<std::uint32_t>(i)));
        number && stream.kind != StreamKind::host) {
      names.streams[*number] = {stream.name, std::string(Name(stream.kind))};
    }
  }
  const GpuRecords records = options_.capture->TakeWork();
  for (const GpuSlice& slice : SlicesOf(records, names, recorder_.zero())) {
    recorder_.Busy(slice.stream.name, slice.stream.kind, slice.operation.name, slice.start, slice.end,
                   slice.operation.span);
  }
  RecordedHost& recorded = outcome_.recorded.emplace();
  const Nanos begin = recorder_.zero() + step_start_;
  for (const GpuWaitRecord& wait : records.waits) {
    if (begin <= wait.start && wait.start < wait.end) {
      ++recorded.waits;
      recorded.waited += wait.end - wait.start;
    }
  }
  for (const GpuOverheadRecord& overhead : records.overhead) {
    if (begin <= overhead.start && overhead.start < overhead.end) {
      recorded.overhead += overhead.end - overhead.start;
    }
  }
  first_issued_ += issued_.size();
  issued_.clear();
}

}  // namespace tidemark
