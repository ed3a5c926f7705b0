// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/device_recording.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <unordered_map>

namespace tidemark {
namespace {

/// Allocations and frees of one device, as events of a trace.
class MemoryOfDevice {
 public:
  MemoryOfDevice(DeviceRecording& recording, Trace& trace, Nanos begin)
      : recording_(recording), trace_(trace), begin_(begin) {}

  Status Add() {
    TIDEMARK_TRY(AddWhatWasThere());
    for (const RecordedBlock& block : recording_.blocks) {
      TIDEMARK_TRY(AddBlock(block));
    }
    return Done{};
  }

  /// Events of what was alive before the recording began.
  std::uint64_t there() const { return there_; }

 private:
  struct Life {
    TensorNameId tensor;
    std::int32_t index0 = 0, index1 = 0;
  };

  /// Blocks that are freed and were never allocated, in the order of their frees, then what the allocator's first total
  /// holds beyond them.
  Status AddWhatWasThere() {
    std::set<std::uint64_t> seen;
    std::vector<const RecordedBlock*> there;
    for (const RecordedBlock& block : recording_.blocks) {
      if (seen.insert(block.address).second && !block.alloc && block.n_bytes > 0) {
        there.push_back(&block);
      }
    }
    std::int64_t total = 0;
    for (const RecordedBlock* block : there) {
      if (block->n_bytes > kMostRecorded - total) {
        return TooMuch();
      }
      total += block->n_bytes;
    }
    for (const RecordedBlock* block : there) {
      TIDEMARK_TRY(Allocate(block->address, {"alive before the recording", Category::unknown, DType::u8},
                            block->n_bytes, 0, MemoryEvent()));
    }
    if (const std::int64_t held = HeldBefore() - total; held > 0) {
      TIDEMARK_ASSIGN(const Life life, Begin({"held throughout the recording", Category::unknown, DType::u8}, held, 0));
      Push(life, true, 0, MemoryEvent());  // nothing frees it
    }
    Bytes running;
    for (MemoryEvent& event : trace_.memory) {
      running += trace_.tensors[event.tensor.index].bytes;
      event.allocator_bytes = AllocatorIsTold() ? running : Bytes();
    }
    there_ = trace_.memory.size();
    if (recording_.counts_own && !recording_.is_whole && !there.empty()) {
      trace_.assumed.emplace_back(
          "before the recording nothing was there but what it saw freed: a processor's profile tells no more");
    }
    return Done{};
  }

  bool AllocatorIsTold() const {
    return !recording_.blocks.empty() && recording_.blocks.front().allocator_bytes != kNotTold;
  }

  /// The allocator's total before the first block.
  std::int64_t HeldBefore() const {
    if (!AllocatorIsTold() || recording_.is_whole) {
      return 0;
    }
    const RecordedBlock& first = recording_.blocks.front();
    return first.alloc ? first.allocator_bytes - first.n_bytes
                       : std::min(first.allocator_bytes, kMostRecorded - first.n_bytes) + first.n_bytes;
  }

  Status AddBlock(const RecordedBlock& block) {
    MemoryEvent event;
    event.issue = event.ready = block.at - begin_;
    event.span = block.span;
    if (block.alloc) {
      if (alive_.contains(block.address)) {  // its free was not recorded
        Free(block.address, event);
      }
      TIDEMARK_TRY(Allocate(block.address, recording_.sites[block.site], block.n_bytes, block.index, event));
    } else if (alive_.contains(block.address)) {
      Free(block.address, event);
    } else {
      return Done{};  // its allocation was not recorded, and nobody knows when it was
    }
    Tell(block);
    return Done{};
  }

  /// The totals after the last event, where the profiler told them; else they stay as they were.
  void Tell(const RecordedBlock& block) {
    MemoryEvent& event = trace_.memory.back();
    if (block.allocator_bytes != kNotTold) {
      event.allocator_bytes = Bytes(std::min(block.allocator_bytes, kMostRecorded));
    }
    if (block.reserved_bytes != kNotTold) {
      event.reserved_bytes = Bytes(std::min(block.reserved_bytes, kMostRecorded));
    }
  }

  Status Allocate(std::uint64_t address, const AllocationSite& site, std::int64_t n_bytes, std::int32_t index,
                  const MemoryEvent& event) {
    TIDEMARK_ASSIGN(const Life life, Begin(site, n_bytes, index));
    alive_[address] = life;
    Push(life, true, address, event);
    return Done{};
  }

  Result<Life> Begin(const AllocationSite& site, std::int64_t n_bytes, std::int32_t index) {
    if (n_bytes > kMostRecorded - total_) {
      return TooMuch();
    }
    const auto [found, is_new] = tensors_.try_emplace({site.name, site.category, site.dtype, n_bytes},
                                                      static_cast<std::uint32_t>(trace_.tensors.size()));
    if (is_new) {
      trace_.tensors.push_back({site.name, site.category, site.dtype, Bytes(n_bytes)});
      members_.push_back(0);
    }
    total_ += n_bytes;
    return Life{TensorNameId{found->second}, index, members_[found->second]++};
  }

  void Free(std::uint64_t address, const MemoryEvent& event) {
    const auto found = alive_.find(address);
    total_ -= trace_.tensors[found->second.tensor.index].bytes.count();
    Push(found->second, false, address, event);
    alive_.erase(found);
  }

  void Push(const Life& life, bool alloc, std::uint64_t address, MemoryEvent event) {
    event.alloc = alloc;
    event.tensor = life.tensor;
    event.index0 = life.index0;
    event.index1 = life.index1;
    event.address = address;
    if (!trace_.memory.empty()) {
      event.allocator_bytes = trace_.memory.back().allocator_bytes;
      event.reserved_bytes = trace_.memory.back().reserved_bytes;
    }
    trace_.memory.push_back(event);
  }

  Error TooMuch() const {
    return BadInput(fmt::format("{}: more than 2^62 bytes are alive, which no device holds", recording_.role));
  }

  DeviceRecording& recording_;
  Trace& trace_;
  Nanos begin_;
  std::int64_t total_ = 0;
  std::uint64_t there_ = 0;
  std::map<std::tuple<std::string, Category, DType, std::int64_t>, std::uint32_t> tensors_;
  std::vector<std::int32_t> members_;    // allocations so far, by tensor
  std::map<std::uint64_t, Life> alive_;  // ordered, since hostile keys make a hash table slow
};

/// What a stream mostly is for, by what ran on it.
struct StreamUse {
  bool computes = false, communicates = false;

  std::string Kind() const { return computes ? "compute" : communicates ? "collective" : "copy"; }
};

bool IsCollective(const std::string& kernel) { return kernel.starts_with("nccl") || kernel.starts_with("rccl"); }

/// For each slice the phase in which the host issued it.
std::vector<std::uint16_t> SpansOf(const std::vector<RecordedSlice>& slices, const Timeline& timeline) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    if (slices[i].issued) {
      order.push_back(i);
    }
  }
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return *slices[a].issued < *slices[b].issued; });
  std::vector<std::uint16_t> spans(slices.size(), kNoSpan);
  Timeline::Cursor cursor(timeline);
  for (const std::size_t at : order) {
    spans[at] = cursor.At(*slices[at].issued).span;
  }
  return spans;
}

Status AddSlices(const DeviceRecording& recording, const Timeline& timeline, const StringPool& names, Nanos begin,
                 Trace& trace) {
  std::map<std::uint32_t, StreamUse> uses;
  std::int64_t busy = 0;
  for (const RecordedSlice& slice : recording.slices) {
    StreamUse& use = uses[slice.stream];
    const bool collective = !slice.is_copy && IsCollective(names[slice.name]);
    use.communicates = use.communicates || collective;
    use.computes = use.computes || (!slice.is_copy && !collective);
    if ((slice.end - slice.start).count() > kMostRecorded - busy) {
      return BadInput(fmt::format("{}: its slices take more than 146 years together", recording.role));
    }
    busy += (slice.end - slice.start).count();
  }
  if (uses.size() > kNoStream) {
    return BadInput(fmt::format("{}: {} streams, but a trace holds 65,535", recording.role, uses.size()));
  }
  std::map<std::uint32_t, std::uint16_t> streams;
  for (const auto& [id, use] : uses) {
    streams[id] = static_cast<std::uint16_t>(trace.streams.size());
    trace.streams.push_back({fmt::format("stream {}", id), use.Kind()});
  }
  for (const auto& [id, name] : recording.streams) {
    if (const auto found = streams.find(id); found != streams.end()) {
      trace.streams[found->second].name = name;
    }
  }
  const std::vector<std::uint16_t> spans = SpansOf(recording.slices, timeline);
  std::unordered_map<std::uint32_t, std::uint32_t> strings;
  for (std::size_t i = 0; i < recording.slices.size(); ++i) {
    const RecordedSlice& slice = recording.slices[i];
    const auto [found, is_new] = strings.try_emplace(slice.name, static_cast<std::uint32_t>(trace.strings.size()));
    if (is_new) {
      trace.strings.push_back(names[slice.name]);
    }
    trace.slices.push_back(
        {streams[slice.stream], TraceStringId{found->second}, slice.start - begin, slice.end - begin, spans[i]});
  }
  std::stable_sort(trace.slices.begin(), trace.slices.end(),
                   [](const Slice& a, const Slice& b) { return a.start < b.start; });
  return Done{};
}

std::uint64_t EventsBefore(const Trace& trace, std::uint64_t there, Nanos instant) {
  const auto first = std::lower_bound(trace.memory.begin() + static_cast<std::ptrdiff_t>(there), trace.memory.end(),
                                      instant, [](const MemoryEvent& event, Nanos at) { return event.issue < at; });
  return static_cast<std::uint64_t>(first - trace.memory.begin());
}

void AddTimeline(const Timeline& timeline, Nanos begin, std::uint64_t there, Trace& trace) {
  trace.spans = timeline.spans();
  for (Span& span : trace.spans) {
    span.begin -= begin;
    span.end -= begin;
  }
  trace.steps = timeline.steps();
  for (StepMark& step : trace.steps) {
    step.begin -= begin;
    step.end -= begin;
    step.memory_begin = EventsBefore(trace, there, step.begin);
  }
}

/// From the first step's begin to the last one's end, else to whatever came last.
Nanos LengthOf(const Trace& trace) {
  if (!trace.steps.empty()) {
    return trace.steps.back().end - trace.steps.front().begin;
  }
  Nanos end = trace.memory.empty() ? Nanos() : trace.memory.back().issue;
  for (const Slice& slice : trace.slices) {
    end = std::max(end, slice.end);
  }
  for (const Span& span : trace.spans) {
    end = std::max(end, span.end);
  }
  return end;
}

}  // namespace

Result<Trace> TraceOf(DeviceRecording recording, const Timeline& timeline, const StringPool& names, Nanos begin) {
  Trace trace;
  trace.origin = std::move(recording.origin);
  trace.role = recording.role;
  trace.clock = std::move(recording.clock);
  MemoryOfDevice memory(recording, trace, begin);
  TIDEMARK_TRY(memory.Add());
  TIDEMARK_TRY(AddSlices(recording, timeline, names, begin, trace));
  AddTimeline(timeline, begin, memory.there(), trace);
  for (RecordedInstant& instant : recording.instants) {
    if (const std::uint64_t events = EventsBefore(trace, 0, instant.at - begin + Nanos(1)); events > 0) {
      trace.marks.push_back({std::move(instant.name), events});
    }
  }
  trace.step = LengthOf(trace);
  if (const std::string fault = Verify(trace); !fault.empty()) {
    return BadInput(fmt::format("a sound trace was expected, but {}", fault));
  }
  return trace;
}

}  // namespace tidemark
