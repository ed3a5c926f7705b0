// SPDX-License-Identifier: Apache-2.0
//
// Perfetto's native trace (ui.perfetto.dev): a process for each trace, with counters of its memory, its phases, steps
// and streams. The messages are those of traces/formats/perfetto.proto.
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "traces/formats/format.h"
#include "traces/formats/perfetto_memory.h"
#include "traces/formats/perfetto_sequence.h"
#include "traces/formats/perfetto_timeline.h"

namespace tidemark {
namespace {

/// 0, or the earliest time of all where that is before 0.
Nanos EarliestTime(std::span<const Trace> traces) {
  Nanos earliest;
  for (const Trace& trace : traces) {
    for (const MemoryEvent& event : trace.memory) {
      earliest = std::min(earliest, event.issue);
    }
    for (const Span& span : trace.spans) {
      earliest = std::min(earliest, span.begin);
    }
    for (const Slice& slice : trace.slices) {
      earliest = std::min(earliest, slice.start);
    }
  }
  return earliest;  // steps begin at 0 or later
}

void DeclareProcess(const Trace& trace, std::uint64_t uuid, std::int32_t pid, const PerfettoMemory& memory,
                    PerfettoSequence& sequence) {
  perfetto::TrackDescriptor& track = sequence.Descriptor(uuid);
  track.set_sibling_order_rank(pid);
  perfetto::ProcessDescriptor& process = *track.mutable_process();
  process.set_pid(pid);
  process.set_process_name(trace.role.empty() ? fmt::format("trace {}", pid) : trace.role);
  for (const std::string& label : {trace.origin, trace.title}) {
    if (!label.empty()) {
      process.add_process_labels(label);
    }
  }
  if (trace.ranks > 1) {
    process.add_process_labels(fmt::format("one of {} ranks that do the same", trace.ranks));
  }
  memory.SetDefaults(sequence);
  sequence.Emit();
}

/// Processes stand in the order of the traces.
void WriteRoot(PerfettoFile& file) {
  PerfettoSequence sequence(file, 1);
  sequence.Descriptor(0).set_process_ordering(perfetto::TrackDescriptor::PROCESS_ORDERING_EXPLICIT);
  sequence.Emit();
}

void WriteTrace(const Trace& trace, std::int32_t pid, PerfettoFile& file) {
  PerfettoSequence sequence(file, static_cast<std::uint32_t>(pid) + 1);
  const std::uint64_t process = file.next_uuid++;
  const PerfettoMemory memory(trace, file);
  DeclareProcess(trace, process, pid, memory, sequence);
  memory.DeclareTracks(sequence, process);
  memory.WriteSamples(sequence);
  memory.WritePeak(sequence, process);
  WritePhasesAndStreams(trace, process, sequence);
  WriteSteps(trace, process, sequence);
}

class PerfettoFormat : public TraceFormat {
 public:
  std::string_view name() const override { return "perfetto"; }
  std::string_view summary() const override {
    return "what ui.perfetto.dev opens: a process per trace, memory as counters, phases and streams as tracks";
  }
  bool reads() const override { return false; }
  bool writes() const override { return true; }
  std::vector<std::string_view> endings() const override { return {".pftrace", ".perfetto-trace"}; }
  bool archives() const override { return true; }
  bool Sniff(std::string_view) const override { return false; }
  Result<TraceFile> Read(std::string_view) const override {
    return BadInput("Perfetto's traces are only written", "read what the trace was made of");
  }

  Result<std::string> Write(std::span<const Trace> traces) const override {
    PerfettoFile file;
    file.zero = EarliestTime(traces);
    WriteRoot(file);
    for (std::size_t i = 0; i < traces.size(); ++i) {
      WriteTrace(traces[i], static_cast<std::int32_t>(i + 1), file);
    }
    return std::move(file.bytes);
  }
};

}  // namespace

std::unique_ptr<TraceFormat> FormatPerfetto() { return std::make_unique<PerfettoFormat>(); }

}  // namespace tidemark
