// SPDX-License-Identifier: Apache-2.0
//
// Tidemark's own trace file: its frames are described in traces/formats/tidemark_frames.h, and written by
// traces/formats/trace_writer.cc.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <utility>

#include "base/text.h"
#include "traces/formats/format.h"
#include "traces/formats/tidemark_frames.h"
#include "traces/formats/trace_writer.h"
#include "traces/trace.pb.h"

namespace tidemark {
namespace {

constexpr std::int64_t kMostLayers = std::int64_t{1} << 31;

/// Puts the traces of a file together, record by record. Each function says what is wrong, or nothing.
class Assembler {
 public:
  std::string Add(const wire::Record& record) {
    if (record.has_header()) {
      return AddHeader(record.header());
    }
    if (record.has_end()) {
      ended_ = true;
      return record.end().traces() == traces_.size() ? "" : "the file does not hold as many traces as its end says";
    }
    if (traces_.empty()) {
      return "a trace begins without its header";
    }
    if (record.has_tables()) {
      return AddTables(record.tables());
    }
    if (record.has_amendment()) {
      return Amend(record.amendment());
    }
    if (record.has_memory()) {
      return AddMemory(record.memory());
    }
    return record.has_slices() ? AddSlices(record.slices()) : std::string();  // unknown records are newer than we are
  }

  bool ended() const { return ended_; }
  std::vector<Trace>& traces() { return traces_; }

 private:
  std::string AddHeader(const wire::Header& header) {
    ReadHeader(header, traces_.emplace_back());
    return {};
  }

  static void ReadHeader(const wire::Header& header, Trace& trace) {
    trace.origin = header.origin();
    trace.clock = header.clock();
    trace.tool_version = header.tool_version();
    trace.title = header.title();
    trace.job_yaml = header.job_yaml();
    trace.role = header.role();
    trace.ranks = header.ranks();
    trace.device_memory = Bytes(header.device_memory_bytes());
    trace.usable_memory = Bytes(header.usable_memory_bytes());
    trace.step = Nanos(header.step_ns());
    trace.device_low = Bytes(header.device_low_bytes());
    trace.device_expected = Bytes(header.device_expected_bytes());
    trace.device_high = Bytes(header.device_high_bytes());
    trace.missing = header.missing();
    trace.allocator.assign(header.allocator().begin(), header.allocator().end());
    trace.assumed.assign(header.assumed().begin(), header.assumed().end());
    trace.not_modelled.assign(header.not_modelled().begin(), header.not_modelled().end());
    trace.lints.clear();
    for (const wire::Lint& lint : header.lints()) {
      trace.lints.push_back({lint.id(), lint.severity(), lint.message(), lint.hint(), lint.cause()});
    }
  }

  std::string Amend(const wire::Amendment& amendment) {
    Trace& trace = traces_.back();
    if (amendment.span_size() != amendment.span_end_ns_size() ||
        amendment.step_size() != amendment.step_end_ns_size()) {
      return "the columns of an amendment differ in length";
    }
    if (amendment.has_header()) {
      ReadHeader(amendment.header(), trace);
    }
    for (int i = 0; i < amendment.span_size(); ++i) {
      if (amendment.span(i) >= trace.spans.size()) {
        return "an amendment names a phase that the trace does not have";
      }
      trace.spans[amendment.span(i)].end = Nanos(amendment.span_end_ns(i));
    }
    for (int i = 0; i < amendment.step_size(); ++i) {
      if (amendment.step(i) >= trace.steps.size()) {
        return "an amendment names a step that the trace does not have";
      }
      trace.steps[amendment.step(i)].end = Nanos(amendment.step_end_ns(i));
    }
    return {};
  }

  std::string AddTables(const wire::Tables& tables) {
    Trace& trace = traces_.back();
    trace.strings.insert(trace.strings.end(), tables.strings().begin(), tables.strings().end());
    for (const wire::Tensor& tensor : tables.tensors()) {
      const std::optional<Category> category = ParseCategory(tensor.category());
      const std::optional<DType> dtype = ParseDType(tensor.dtype());
      if (!category || !dtype) {
        return fmt::format("tensor '{}' has an unknown category or dtype", tensor.name());
      }
      if (tensor.layer_index() > 1 || std::abs(tensor.first_layer()) > kMostLayers) {
        return fmt::format("tensor '{}' is of layers that cannot be", tensor.name());
      }
      const FamilyLayers layers{tensor.block(), static_cast<std::uint8_t>(tensor.layer_index()), tensor.first_layer()};
      trace.tensors.push_back({tensor.name(), *category, *dtype, Bytes(tensor.n_bytes()), tensor.sharding(), layers});
    }
    for (const wire::Stream& stream : tables.streams()) {
      trace.streams.push_back({stream.name(), stream.kind()});
    }
    for (const wire::Span& span : tables.spans()) {
      trace.spans.push_back(
          {span.phase(), span.microbatch(), Nanos(span.begin_ns()), Nanos(span.end_ns()), span.side()});
    }
    for (const wire::Step& step : tables.steps()) {
      trace.steps.push_back({step.kind(), Nanos(step.begin_ns()), Nanos(step.end_ns()), step.memory_begin()});
    }
    for (const wire::Mark& mark : tables.marks()) {
      trace.marks.push_back({mark.name(), mark.events()});
    }
    return {};
  }

  std::string AddMemory(const wire::MemoryChunk& chunk) {
    const int rows = chunk.alloc_size();
    const std::array columns = {chunk.tensor_size(),
                                chunk.index0_size(),
                                chunk.index1_size(),
                                chunk.issue_ns_delta_size(),
                                chunk.ready_ns_delta_size(),
                                chunk.address_size(),
                                chunk.span_size(),
                                chunk.allocator_bytes_delta_size(),
                                chunk.reserved_bytes_delta_size()};
    if (std::any_of(columns.begin(), columns.end(), [&](int size) { return size != rows; })) {
      return "the columns of a memory record differ in length";
    }
    const bool streams = chunk.stream_size() != 0, waits = chunk.waits_size() != 0;
    if ((streams && chunk.stream_size() != rows) || (waits && chunk.waits_size() != rows)) {
      return "the columns of a memory record differ in length";
    }
    Delta issue, ready, allocator, reserved;
    for (int i = 0; i < rows; ++i) {
      MemoryEvent event;
      event.alloc = chunk.alloc(i);
      event.tensor.index = chunk.tensor(i);
      event.index0 = chunk.index0(i);
      event.index1 = chunk.index1(i);
      event.issue = Nanos(issue.Decode(chunk.issue_ns_delta(i)));
      event.ready = Nanos(ready.Decode(chunk.ready_ns_delta(i)));
      event.address = chunk.address(i);
      event.span = RowOf(chunk.span(i));
      event.stream = RowOf(streams ? chunk.stream(i) : 0);
      event.waits = waits && chunk.waits(i);
      event.allocator_bytes = Bytes(allocator.Decode(chunk.allocator_bytes_delta(i)));
      event.reserved_bytes = Bytes(reserved.Decode(chunk.reserved_bytes_delta(i)));
      traces_.back().memory.push_back(event);
    }
    return {};
  }

  std::string AddSlices(const wire::SliceChunk& chunk) {
    const int rows = chunk.stream_size();
    const bool spans = chunk.span_size() != 0;
    if (chunk.name_size() != rows || chunk.start_ns_delta_size() != rows || chunk.duration_ns_size() != rows ||
        (spans && chunk.span_size() != rows)) {
      return "the columns of a slice record differ in length";
    }
    Delta start;
    for (int i = 0; i < rows; ++i) {
      const std::int64_t begin = start.Decode(chunk.start_ns_delta(i));
      std::int64_t end = 0;
      if (chunk.stream(i) > 0xffff || __builtin_add_overflow(begin, chunk.duration_ns(i), &end)) {
        return "a slice lies outside of every possible time or stream";
      }
      traces_.back().slices.push_back({static_cast<std::uint16_t>(chunk.stream(i)), TraceStringId{chunk.name(i)},
                                       Nanos(begin), Nanos(end), RowOf(spans ? chunk.span(i) : 0)});
    }
    return {};
  }

  std::vector<Trace> traces_;
  bool ended_ = false;
};

std::string CutNote(const std::vector<Trace>& traces) {
  std::size_t events = 0;
  for (const Trace& trace : traces) {
    events += trace.memory.size() + trace.slices.size();
  }
  return fmt::format("the file was cut off or damaged after {} events", Grouped(static_cast<std::int64_t>(events)));
}

/// A step that was under way when the file was cut ends with the last event.
void EndOpenStep(Trace& trace) {
  if (trace.steps.empty()) {
    return;
  }
  StepMark& last = trace.steps.back();
  if (last.end == last.begin) {
    last.end = std::max(last.end, trace.memory.empty() ? Nanos() : trace.memory.back().issue);
    for (const Slice& slice : trace.slices) {
      last.end = std::max(last.end, slice.end);
    }
  }
  trace.step = std::max(trace.step, last.end - trace.steps.front().begin);
}

class TidemarkFormat : public TraceFormat {
 public:
  std::string_view name() const override { return "tidemark"; }
  std::string_view summary() const override { return "Tidemark's own trace: checksummed frames of Protobuf records"; }
  bool reads() const override { return true; }
  bool writes() const override { return true; }
  std::vector<std::string_view> endings() const override { return {".trace", ".tidemark"}; }
  bool Sniff(std::string_view head) const override { return head.starts_with(kTraceFamily); }

  Result<TraceFile> Read(std::string_view bytes) const override {
    if (!bytes.starts_with(kTraceMagic)) {
      return BadInput("a Tidemark trace of format version 1 was expected",
                      "a newer tidemark may have written this file");
    }
    Assembler assembler;
    std::size_t at = kTraceMagic.size();
    while (!assembler.ended()) {
      const std::optional<std::string_view> payload = FrameAt(bytes, at);
      wire::Record record;
      if (!payload || !record.ParseFromArray(payload->data(), static_cast<int>(payload->size()))) {
        break;
      }
      if (const std::string fault = assembler.Add(record); !fault.empty()) {
        return BadInput(fmt::format("a sound trace was expected, but {}", fault));
      }
      at += kFrameHead + payload->size();
    }
    return Finish(assembler);
  }

  Result<std::string> Write(std::span<const Trace> traces) const override {
    std::string out;
    TraceWriter writer([&](std::string_view bytes) {
      out += bytes;
      return Status(Done{});
    });
    for (const Trace& trace : traces) {
      TIDEMARK_TRY(writer.Append(trace));
      TIDEMARK_TRY(writer.EndTrace());
    }
    TIDEMARK_TRY(writer.Close());
    return out;
  }

 private:
  static Result<TraceFile> Finish(Assembler& assembler) {
    TraceFile file;
    if (!assembler.ended()) {
      if (assembler.traces().empty()) {
        return BadInput("a trace was expected, but the file is cut off before its first one");
      }
      file.note = CutNote(assembler.traces());
      EndOpenStep(assembler.traces().back());
    }
    file.traces = std::move(assembler.traces());
    for (const Trace& trace : file.traces) {
      file.note = file.note.empty() ? trace.missing : file.note;
      if (const std::string fault = Verify(trace); !fault.empty()) {
        return BadInput(fmt::format("a sound trace was expected, but {}", fault));
      }
    }
    return file;
  }
};

}  // namespace

std::unique_ptr<TraceFormat> FormatTidemark() { return std::make_unique<TidemarkFormat>(); }

}  // namespace tidemark
