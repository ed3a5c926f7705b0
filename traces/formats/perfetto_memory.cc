// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/perfetto_memory.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "traces/formats/memory_peak.h"

namespace tidemark {
namespace {

constexpr std::size_t kLargestTensors = 20;

/// Names in the order in which the interface sorts the tracks of a process: alphabetically.
constexpr std::array<std::string_view, 3> kTotalNames = {"memory: allocated", "memory: allocator", "memory: reserved"};
constexpr std::array<std::string_view, 3> kTotalMeanings = {
    "bytes of all tensors that are alive", "bytes of the allocator's blocks that are in use, rounding included",
    "bytes that the allocator has from the device"};

void DeclareCounter(PerfettoSequence& sequence, std::uint64_t uuid, std::uint64_t process, const std::string& name,
                    std::string_view meaning, const std::string& axis) {
  perfetto::TrackDescriptor& track = sequence.Descriptor(uuid);
  track.set_name(name);
  track.set_parent_uuid(process);
  track.set_description(std::string(meaning));
  track.mutable_counter()->set_unit(perfetto::CounterDescriptor::UNIT_SIZE_BYTES);
  track.mutable_counter()->set_y_axis_share_key(axis);
  sequence.Emit();
}

void WriteCounter(PerfettoSequence& sequence, Nanos at, std::uint64_t track, std::int64_t value) {
  sequence.Event(at, track, perfetto::TrackEvent::TYPE_COUNTER).set_counter_value(value);
  sequence.Emit();
}

void AddNumber(perfetto::DebugAnnotation& dictionary, std::string_view name, std::int64_t value) {
  perfetto::DebugAnnotation& entry = *dictionary.add_dict_entries();
  entry.set_name(std::string(name));
  entry.set_int_value(value);
}

void AddText(perfetto::DebugAnnotation& dictionary, std::string_view name, std::string_view value) {
  perfetto::DebugAnnotation& entry = *dictionary.add_dict_entries();
  entry.set_name(std::string(name));
  entry.set_string_value(std::string(value));
}

}  // namespace

PerfettoMemory::PerfettoMemory(const Trace& trace, PerfettoFile& file) : trace_(trace) {
  bool knows_allocator = false, knows_reserved = false;
  for (const MemoryEvent& event : trace.memory) {
    std::uint64_t& track = categories_.at(static_cast<std::size_t>(trace.tensors[event.tensor.index].category));
    track = track == 0 ? file.next_uuid++ : track;
    knows_allocator = knows_allocator || event.allocator_bytes != Bytes(0);
    knows_reserved = knows_reserved || event.reserved_bytes != Bytes(0);
  }
  const std::size_t totals = trace.memory.empty() ? 0 : knows_reserved ? 3 : knows_allocator ? 2 : 1;
  for (std::size_t i = 0; i < totals; ++i) {
    totals_.push_back(file.next_uuid++);
  }
}

void PerfettoMemory::SetDefaults(PerfettoSequence& sequence) const {
  for (const std::uint64_t track : totals_) {
    sequence.Defaults().mutable_track_event_defaults()->add_extra_counter_track_uuids(track);
  }
}

void PerfettoMemory::DeclareTracks(PerfettoSequence& sequence, std::uint64_t process) const {
  for (std::size_t i = 0; i < kCategories; ++i) {
    if (categories_[i] != 0) {
      const std::string_view category = Name(static_cast<Category>(i));
      DeclareCounter(sequence, categories_[i], process, fmt::format("memory by category: {}", category),
                     fmt::format("bytes of {} tensors", category), "memory by category");
    }
  }
  for (std::size_t i = 0; i < totals_.size(); ++i) {
    DeclareCounter(sequence, totals_[i], process, std::string(kTotalNames[i]), kTotalMeanings[i], "memory");
  }
}

void PerfettoMemory::WriteSamples(PerfettoSequence& sequence) const {
  CategoryBytes now;
  Totals before{};
  for (const MemoryEvent& event : trace_.memory) {
    const TraceTensor& tensor = trace_.tensors[event.tensor.index];
    const Bytes gained = event.alloc ? tensor.bytes : Bytes(0) - tensor.bytes;
    now[tensor.category] += gained;
    const Totals after = {before[0] + gained.count(), event.allocator_bytes.count(), event.reserved_bytes.count()};
    Sample(sequence, event.issue, categories_[static_cast<std::size_t>(tensor.category)], now[tensor.category].count(),
           before, after);
    before = after;
  }
}

/// Of the totals only those up to the last one that changed are written. Perfetto's importer (as of 2026) takes an
/// extra value of 0 for the end of the list, so one before others goes without extras.
void PerfettoMemory::Sample(PerfettoSequence& sequence, Nanos at, std::uint64_t category_track,
                            std::int64_t category_bytes, const Totals& before, const Totals& after) const {
  std::size_t count = totals_.size();
  while (count > 0 && before[count - 1] == after[count - 1]) {
    --count;
  }
  const auto first_zero = std::find(after.begin(), after.begin() + count, 0);
  const bool as_extras = std::all_of(first_zero, after.begin() + count, [](std::int64_t value) { return value == 0; });
  perfetto::TrackEvent& event = sequence.Event(at, category_track, perfetto::TrackEvent::TYPE_COUNTER);
  event.set_counter_value(category_bytes);
  for (std::size_t i = 0; i < count && as_extras; ++i) {
    event.add_extra_counter_values(after[i]);
  }
  sequence.Emit();
  for (std::size_t i = 0; i < count && !as_extras; ++i) {
    WriteCounter(sequence, at, totals_[i], after[i]);
  }
}

void PerfettoMemory::WritePeak(PerfettoSequence& sequence, std::uint64_t track) const {
  if (trace_.memory.empty()) {
    return;
  }
  const MemoryPeak peak = FindMemoryPeak(trace_, kLargestTensors);
  const MemoryEvent& reached = trace_.memory[peak.event];
  perfetto::TrackEvent& event = sequence.Event(reached.issue, track, perfetto::TrackEvent::TYPE_INSTANT);
  event.set_name("memory peak");
  perfetto::DebugAnnotation& summary = *event.add_debug_annotations();
  summary.set_name("peak");
  AddNumber(summary, "allocated_bytes", peak.allocated.count());
  if (reached.span != kNoSpan) {
    AddText(summary, "phase", trace_.spans[reached.span].phase);
  }
  perfetto::DebugAnnotation& by_category = *event.add_debug_annotations();
  by_category.set_name("bytes by category");
  for (std::size_t i = 0; i < kCategories; ++i) {
    if (const Bytes bytes = peak.by_category[static_cast<Category>(i)]; bytes != Bytes(0)) {
      AddNumber(by_category, Name(static_cast<Category>(i)), bytes.count());
    }
  }
  perfetto::DebugAnnotation& largest = *event.add_debug_annotations();
  largest.set_name("largest tensors");
  for (const MemoryPeak::Family& family : peak.largest) {
    perfetto::DebugAnnotation& entry = *largest.add_array_values();
    AddText(entry, "tensor", trace_.tensors[family.tensor.index].name);
    AddNumber(entry, "count", family.count);
    AddNumber(entry, "bytes", family.bytes.count());
  }
  sequence.Emit();
}

}  // namespace tidemark
