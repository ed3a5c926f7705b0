// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/trace_replay.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <memory>
#include <tuple>
#include <utility>

#include "sim/memory/allocator.h"
#include "sim/memory/uses_under_way.h"

namespace tidemark {
namespace {

/// Plays events one by one into an allocator.
class EventPlayer {
 public:
  EventPlayer(const Trace& trace, const AllocatorOptions& options, Bytes capacity)
      : trace_(trace), allocator_(MakeAllocator(options, capacity)) {}

  /// Plays event `at`, the next one, which gets its new address; false where the request was refused.
  bool Play(std::size_t at, MemoryEvent& event) {
    if (step_ < trace_.steps.size() && trace_.steps[step_].memory_begin <= at) {
      BeginStep(at);
    }
    if (event.alloc ? !Allocate(at, event) : !Free(event)) {
      return false;
    }
    event.allocator_bytes = allocator_->allocated();
    event.reserved_bytes = allocator_->reserved();
    return true;
  }

  const Allocator& allocator() const { return *allocator_; }
  /// The event that allocated what lies under a handle.
  std::size_t EventOf(std::uint32_t handle) const { return events_[handle]; }

 private:
  using Member = std::tuple<std::uint32_t, std::int32_t, std::int32_t>;
  struct Live {
    std::uint32_t handle = 0;
    std::uint64_t address = 0;
  };

  void BeginStep(std::size_t at) {
    const bool first = step_ == 0;
    while (step_ < trace_.steps.size() && trace_.steps[step_].memory_begin <= at) {
      ++step_;
    }
    if (!first) {
      uses_.Synchronize(*allocator_);
    }
  }

  bool Allocate(std::size_t at, MemoryEvent& event) {
    uses_.EndUntil(event.issue, *allocator_);
    const std::uint32_t stream = event.stream == kNoStream ? 0 : event.stream;
    const auto given = allocator_->Allocate(trace_.tensors[event.tensor.index].bytes, stream);
    if (!given) {
      return false;
    }
    live_[{event.tensor.index, event.index0, event.index1}] = {given->handle, given->address};
    if (events_.size() <= given->handle) {
      events_.resize(given->handle + std::size_t{1});
    }
    events_[given->handle] = at;
    event.address = given->address;
    return true;
  }

  bool Free(MemoryEvent& event) {
    const auto found = live_.find({event.tensor.index, event.index0, event.index1});
    event.address = found->second.address;
    if (event.waits && event.ready > event.issue) {
      uses_.Add(event.ready, allocator_->FreeInUse(found->second.handle));
    } else {
      allocator_->Free(found->second.handle);
    }
    live_.erase(found);
    return true;
  }

  const Trace& trace_;
  std::unique_ptr<Allocator> allocator_;
  std::size_t step_ = 0;  ///< the next to begin
  std::map<Member, Live> live_;
  std::vector<std::size_t> events_;  ///< by handle
  UsesUnderWay uses_;
};

/// What lies in memory at the instant that is told about.
void LookAround(const EventPlayer& player, const Trace& trace, TraceReplay& replay) {
  const auto bytes_of = [&](std::size_t event) { return trace.tensors[trace.memory[event].tensor.index].bytes; };
  for (const DeviceSegment& segment : player.allocator().Segments()) {
    PinnedSegment pinned{segment.bytes(), segment.free(), {}};
    for (const DeviceSegment::Part& part : segment.parts) {
      if (part.handle) {
        pinned.holders.push_back(player.EventOf(*part.handle));
      }
    }
    if (pinned.holders.empty()) {
      replay.releasable += pinned.bytes;
    } else if (pinned.free > Bytes(0)) {
      std::ranges::stable_sort(pinned.holders, std::greater(), bytes_of);
      replay.pinned.push_back(std::move(pinned));
    }
  }
  std::ranges::stable_sort(replay.pinned, std::greater(), &PinnedSegment::free);
}

/// Leaves what happened before an event: those before it in memory, the phases and steps that had begun when it was
/// issued, and the work that its stream came to before it.
void EndAt(MemoryEvent event, std::size_t before, Trace& trace) {
  trace.memory.resize(before);
  const Nanos reached = std::max(event.issue, event.ready);
  std::size_t left = 0;
  for (const MemoryEvent& known : trace.memory) {
    left = std::max(left, known.span == kNoSpan ? 0 : known.span + std::size_t{1});
  }
  for (std::size_t span = left; span < trace.spans.size(); ++span) {
    left = trace.spans[span].begin <= event.issue ? span + 1 : left;
  }
  trace.spans.resize(left);
  for (Span& span : trace.spans) {
    span.end = std::max(span.begin, std::min(span.end, event.issue));
  }
  std::erase_if(trace.slices, [&](const Slice& slice) {
    return slice.start >= reached || (slice.span != kNoSpan && slice.span >= left);
  });
  std::erase_if(trace.steps, [&](const StepMark& step) { return step.begin > event.issue; });
  std::erase_if(trace.marks, [&](const InstantMark& mark) { return mark.events > before; });
  trace.step = event.issue;
  for (const Slice& slice : trace.slices) {
    trace.step = std::max(trace.step, slice.end);
  }
  if (!trace.steps.empty()) {
    trace.steps.back().end = std::max(trace.steps.back().begin, std::min(trace.steps.back().end, trace.step));
  }
}

}  // namespace

double TraceReplay::fragmentation() const {
  return reserved > Bytes(0)
             ? static_cast<double>((reserved - allocated).count()) / static_cast<double>(reserved.count())
             : 0;
}

TraceReplay ReplayTrace(const Trace& trace, const AllocatorOptions& options, Bytes capacity) {
  TraceReplay replay;
  replay.trace = trace;
  std::vector<MemoryEvent>& events = replay.trace.memory;
  EventPlayer first(trace, options, capacity);
  std::size_t played = 0;
  while (played < events.size() && first.Play(played, events[played])) {
    const auto height = [&](std::size_t at) {
      return std::pair(events[at].reserved_bytes, events[at].allocator_bytes);
    };
    if (height(played) > height(replay.at)) {
      replay.at = played;
    }
    ++played;
  }
  if (played < events.size()) {
    replay.refused = played;
    replay.refused_bytes = trace.tensors[events[played].tensor.index].bytes;
    replay.at = played == 0 ? 0 : played - 1;
    EndAt(events[played], played, replay.trace);
    replay.trace.missing = RefusedText(replay.refused_bytes);
    if (played > 0) {
      replay.trace.marks.push_back({kOutOfMemory, played});
    }
  }
  replay.trace.device_low = replay.trace.device_expected = replay.trace.device_high = Bytes(0);
  replay.reserved_peak = first.allocator().reserved_peak();
  replay.allocator_peak = first.allocator().allocated_peak();
  replay.cache_flushes = first.allocator().cache_flushes();
  if (events.empty()) {
    return replay;
  }
  replay.reserved = events[replay.at].reserved_bytes;
  replay.allocated = events[replay.at].allocator_bytes;
  // Only now is it known where to look: looking costs as much as there are segments.
  EventPlayer second(trace, options, capacity);
  for (std::size_t i = 0; i <= replay.at; ++i) {
    MemoryEvent event = trace.memory[i];
    second.Play(i, event);
  }
  LookAround(second, trace, replay);
  return replay;
}

}  // namespace tidemark
