// SPDX-License-Identifier: Apache-2.0
//
// JSON lines (https://jsonlines.org): an object a line, each with its `type` and the number of its trace, so that
// `jq 'select(.type == "memory")'` and line-by-line readers need nothing else. A trace is its header, then tensors,
// spans and steps, then memory events and slices, which repeat the names of what they refer to. Sizes are bytes, times
// nanoseconds; what is not known is left out.
#include <fmt/compile.h>
#include <fmt/format.h>

#include <iterator>
#include <string>
#include <vector>

#include "traces/formats/format.h"
#include "traces/formats/json_text.h"
#include "traces/place.h"

namespace tidemark {
namespace {

class Lines {
 public:
  Lines(const Trace& trace, std::size_t number, std::string& out)
      : trace_(trace), trace_number_(fmt::format("\"trace\":{}", number)), out_(out) {
    for (const TraceTensor& tensor : trace.tensors) {
      tensors_.push_back(fmt::format("\"tensor\":{},\"category\":{},\"bytes\":{}", JsonText(tensor.name),
                                     JsonText(Name(tensor.category)), tensor.bytes.count()));
    }
    for (const Span& span : trace.spans) {
      spans_.push_back(fmt::format(",\"phase\":{}", JsonText(span.phase)));
      if (span.microbatch >= 0) {
        spans_.back() += fmt::format(",\"microbatch\":{}", span.microbatch);
      }
      if (!span.side.empty()) {
        spans_.back() += fmt::format(",\"side\":{}", JsonText(span.side));
      }
    }
    for (const TraceStream& stream : trace.streams) {
      streams_.push_back(fmt::format(",\"stream\":{}", JsonText(stream.name)));
    }
    for (const std::string& name : trace.strings) {
      names_.push_back(JsonText(name));
    }
  }

  void Append() {
    AppendHeader();
    AppendTables();
    AppendMemory();
    AppendSlices();
  }

 private:
  template <class... Values>
  void Add(fmt::format_string<Values...> format, Values&&... values) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Values>(values)...);
  }

  void AddText(std::string_view key, const std::string& value) {
    if (!value.empty()) {
      Add(",\"{}\":{}", key, JsonText(value));
    }
  }

  void AddBytes(std::string_view key, Bytes bytes) {
    if (bytes != Bytes(0)) {
      Add(",\"{}\":{}", key, bytes.count());
    }
  }

  void AppendHeader() {
    Add("{{\"type\":\"header\",{},\"format\":\"tidemark.trace/1\"", trace_number_);
    AddText("origin", trace_.origin);
    AddText("role", trace_.role);
    AddText("title", trace_.title);
    AddText("clock", trace_.clock);
    AddText("missing", trace_.missing);
    AddText("tool_version", trace_.tool_version);
    Add(",\"ranks\":{},\"step_ns\":{}", trace_.ranks, trace_.step.count());
    AddBytes("device_memory_bytes", trace_.device_memory);
    AddBytes("usable_memory_bytes", trace_.usable_memory);
    AddBytes("device_low_bytes", trace_.device_low);
    AddBytes("device_expected_bytes", trace_.device_expected);
    AddBytes("device_high_bytes", trace_.device_high);
    AddText("job", trace_.job_yaml);
    AddText("allocator", fmt::format("{}", fmt::join(trace_.allocator, " ")));
    out_ += "}\n";
  }

  void AppendTables() {
    for (std::size_t i = 0; i < trace_.tensors.size(); ++i) {
      const TraceTensor& tensor = trace_.tensors[i];
      Add("{{\"type\":\"tensor\",{},{}", trace_number_, tensors_[i]);
      AddText("dtype", IsTold(tensor.dtype, tensor.category) ? std::string(Name(tensor.dtype)) : "");
      AddText("sharding", tensor.sharding);
      out_ += "}\n";
    }
    for (std::size_t i = 0; i < trace_.spans.size(); ++i) {
      Add("{{\"type\":\"span\",{}{},\"begin_ns\":{},\"end_ns\":{}}}\n", trace_number_, spans_[i],
          trace_.spans[i].begin.count(), trace_.spans[i].end.count());
    }
    for (const StepMark& step : trace_.steps) {
      Add("{{\"type\":\"step\",{}", trace_number_);
      AddText("kind", step.kind);
      Add(",\"begin_ns\":{},\"end_ns\":{},\"first_event\":{}}}\n", step.begin.count(), step.end.count(),
          step.memory_begin);
    }
  }

  void AppendMemory() {
    const bool tells_blocks = Tells(trace_, &MemoryEvent::allocator_bytes);
    const bool tells_reserved = Tells(trace_, &MemoryEvent::reserved_bytes);
    Bytes allocated;
    for (std::size_t i = 0; i < trace_.memory.size(); ++i) {
      const MemoryEvent& event = trace_.memory[i];
      const Bytes bytes = trace_.tensors[event.tensor.index].bytes;
      allocated = event.alloc ? allocated + bytes : allocated - bytes;
      const auto at = std::back_inserter(out_);
      fmt::format_to(
          at, FMT_COMPILE("{{\"type\":\"memory\",{},\"event\":{},\"operation\":\"{}\",{},\"index0\":{},\"index1\":{}"),
          trace_number_, i, event.alloc ? "alloc" : "free", tensors_[event.tensor.index], event.index0, event.index1);
      fmt::format_to(at, FMT_COMPILE(",\"issue_ns\":{},\"ready_ns\":{}{}{}{}"), event.issue.count(),
                     event.ready.count(), event.waits ? ",\"waits\":true" : "", PartOf(streams_, event.stream),
                     PartOf(spans_, event.span));
      AppendPlace(event.address, StepOf(trace_, i));
      fmt::format_to(at, FMT_COMPILE(",\"allocated_bytes\":{}"), allocated.count());
      if (tells_blocks) {
        fmt::format_to(at, FMT_COMPILE(",\"allocator_bytes\":{}"), event.allocator_bytes.count());
      }
      if (tells_reserved) {
        fmt::format_to(at, FMT_COMPILE(",\"reserved_bytes\":{}"), event.reserved_bytes.count());
      }
      out_ += "}\n";
    }
  }

  /// Empty where the row is that of none, and not null, which fmt hands on to memcpy.
  static std::string_view PartOf(const std::vector<std::string>& parts, std::uint16_t row) {
    return row < parts.size() ? std::string_view(parts[row]) : std::string_view("");
  }

  void AppendPlace(std::uint64_t address, std::int64_t step) {
    if (address != 0) {
      fmt::format_to(std::back_inserter(out_), FMT_COMPILE(",\"address\":\"{:#x}\""), address);
    }
    if (step >= 0) {
      fmt::format_to(std::back_inserter(out_), FMT_COMPILE(",\"step\":{}"), step);
    }
  }

  void AppendSlices() {
    for (const Slice& slice : trace_.slices) {
      fmt::format_to(std::back_inserter(out_),
                     FMT_COMPILE("{{\"type\":\"slice\",{}{},\"name\":{},\"start_ns\":{},\"end_ns\":{}{}}}\n"),
                     trace_number_, streams_[slice.stream], names_[slice.name.index], slice.start.count(),
                     slice.end.count(), PartOf(spans_, slice.span));
    }
  }

  const Trace& trace_;
  std::string trace_number_;
  std::string& out_;
  std::vector<std::string> tensors_, spans_, streams_, names_;  ///< as members of an object, made once
};

class JsonlFormat : public TraceFormat {
 public:
  std::string_view name() const override { return "jsonl"; }
  std::string_view summary() const override { return "JSON lines, each an object that says what it is"; }
  bool reads() const override { return false; }
  bool writes() const override { return true; }
  std::vector<std::string_view> endings() const override { return {".jsonl", ".ndjson"}; }
  bool text() const override { return true; }
  bool Sniff(std::string_view) const override { return false; }
  Result<TraceFile> Read(std::string_view) const override {
    return BadInput("JSON lines are only written", "read the trace that they were made of");
  }

  Result<std::string> Write(std::span<const Trace> traces) const override {
    std::string out;
    for (std::size_t i = 0; i < traces.size(); ++i) {
      Lines(traces[i], i, out).Append();
    }
    return out;
  }
};

}  // namespace

std::unique_ptr<TraceFormat> FormatJsonl() { return std::make_unique<JsonlFormat>(); }

}  // namespace tidemark
