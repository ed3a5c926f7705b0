// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/perfetto_timeline.h"

#include <fmt/format.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "traces/formats/nested_lanes.h"

namespace tidemark {
namespace {

/// The slices of one line, on as many tracks as they need. `describe(event, i)` fills the event that begins slice `i`.
template <class Describe>
void WriteLine(PerfettoSequence& sequence, std::uint64_t process, std::string_view name,
               const std::vector<Interval>& slices, Describe describe) {
  std::vector<std::uint64_t> tracks;
  for (const LaneMark& mark : NestInLanes(slices)) {
    if (mark.lane == tracks.size()) {
      tracks.push_back(sequence.file().next_uuid++);
      perfetto::TrackDescriptor& track = sequence.Descriptor(tracks.back());
      track.set_name(tracks.size() == 1 ? std::string(name) : fmt::format("{} ({})", name, tracks.size()));
      track.set_parent_uuid(process);
      track.set_sibling_merge_behavior(perfetto::TrackDescriptor::SIBLING_MERGE_BEHAVIOR_NONE);
      sequence.Emit();
    }
    const Interval& slice = slices[mark.interval];
    if (mark.begins) {
      describe(sequence.Event(slice.begin, tracks[mark.lane], perfetto::TrackEvent::TYPE_SLICE_BEGIN), mark.interval);
    } else {
      sequence.Event(slice.end, tracks[mark.lane], perfetto::TrackEvent::TYPE_SLICE_END);
    }
    sequence.Emit();
  }
}

/// "forward 2", "C_forward query 2", "optimizer".
std::string NameOf(const Span& span) {
  std::string name = span.phase;
  if (!span.side.empty()) {
    name += " " + span.side;
  }
  return span.microbatch < 0 ? name : fmt::format("{} {}", name, span.microbatch);
}

/// The arrows of a trace, by where they begin and end.
struct Flows {
  std::vector<std::vector<std::uint64_t>> of_span;  ///< that begin at this phase
  std::map<std::uint32_t, std::uint64_t> of_slice;  ///< that ends at this slice
};

/// An arrow points forward in time, so a slice that began before its phase (times of two clocks) gets none.
Flows FindFlows(const Trace& trace, std::uint64_t& next) {
  std::map<std::pair<std::uint16_t, std::uint16_t>, std::uint32_t> first;  // by phase and stream
  for (std::uint32_t i = 0; i < trace.slices.size(); ++i) {
    const Slice& slice = trace.slices[i];
    if (slice.span != kNoSpan) {
      const auto [place, is_new] = first.try_emplace({slice.span, slice.stream}, i);
      if (!is_new && slice.start < trace.slices[place->second].start) {
        place->second = i;
      }
    }
  }
  Flows flows{std::vector<std::vector<std::uint64_t>>(trace.spans.size()), {}};
  for (const auto& [from, slice] : first) {
    if (trace.slices[slice].start >= trace.spans[from.first].begin) {
      flows.of_span[from.first].push_back(next);
      flows.of_slice[slice] = next++;
    }
  }
  return flows;
}

void WritePhases(const Trace& trace, std::uint64_t process, const Flows& flows, PerfettoSequence& sequence) {
  std::vector<Interval> phases;
  for (const Span& span : trace.spans) {
    phases.push_back({span.begin, span.end});
  }
  WriteLine(sequence, process, "phases", phases, [&](perfetto::TrackEvent& event, std::uint32_t phase) {
    event.set_name_iid(sequence.EventName(NameOf(trace.spans[phase])));
    event.add_category_iids(sequence.EventCategory(trace.spans[phase].phase));
    for (const std::uint64_t flow : flows.of_span[phase]) {
      event.add_flow_ids(flow);
    }
  });
}

void WriteStream(const Trace& trace, std::uint64_t process, const std::string& name,
                 const std::vector<std::uint32_t>& slices, const Flows& flows, PerfettoSequence& sequence) {
  std::vector<Interval> line;
  line.reserve(slices.size());
  for (const std::uint32_t slice : slices) {
    line.push_back({trace.slices[slice].start, trace.slices[slice].end});
  }
  WriteLine(sequence, process, name, line, [&](perfetto::TrackEvent& event, std::uint32_t i) {
    const Slice& slice = trace.slices[slices[i]];
    event.set_name_iid(sequence.EventName(trace.strings[slice.name.index]));
    if (slice.span != kNoSpan) {
      event.add_category_iids(sequence.EventCategory(trace.spans[slice.span].phase));
    }
    if (const auto flow = flows.of_slice.find(slices[i]); flow != flows.of_slice.end()) {
      event.add_terminating_flow_ids(flow->second);
    }
  });
}

}  // namespace

void WritePhasesAndStreams(const Trace& trace, std::uint64_t process, PerfettoSequence& sequence) {
  const Flows flows = FindFlows(trace, sequence.file().next_flow);
  WritePhases(trace, process, flows, sequence);
  std::vector<std::vector<std::uint32_t>> by_stream(trace.streams.size());
  for (std::uint32_t i = 0; i < trace.slices.size(); ++i) {
    by_stream[trace.slices[i].stream].push_back(i);
  }
  for (std::size_t stream = 0; stream < by_stream.size(); ++stream) {
    WriteStream(trace, process, fmt::format("stream {}", trace.streams[stream].name), by_stream[stream], flows,
                sequence);
  }
}

void WriteSteps(const Trace& trace, std::uint64_t process, PerfettoSequence& sequence) {
  std::vector<Interval> steps;
  for (const StepMark& step : trace.steps) {
    steps.push_back({step.begin, step.end});
  }
  WriteLine(sequence, process, "steps", steps, [&](perfetto::TrackEvent& event, std::uint32_t i) {
    const std::string& kind = trace.steps[i].kind;
    event.set_name_iid(sequence.EventName(kind.empty() ? fmt::format("step {}", i + 1)  // steps of text count from 1
                                                       : fmt::format("step {} ({})", i + 1, kind)));
  });
}

}  // namespace tidemark
