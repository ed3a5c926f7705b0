// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/trace_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <span>
#include <utility>

#include "base/check.h"
#include "traces/formats/tidemark_frames.h"
#include "traces/trace.h"
#include "traces/trace.pb.h"
#include "traces/utf8.h"

namespace tidemark {
namespace {

constexpr std::size_t kChunk = 4096;  ///< events of one record

wire::Header HeaderOf(const Trace& trace) {
  wire::Header header;
  header.set_origin(Utf8(trace.origin));
  header.set_clock(Utf8(trace.clock));
  header.set_tool_version(Utf8(trace.tool_version));
  header.set_title(Utf8(trace.title));
  header.set_job_yaml(Utf8(trace.job_yaml));
  header.set_role(Utf8(trace.role));
  header.set_ranks(trace.ranks);
  header.set_device_memory_bytes(trace.device_memory.count());
  header.set_usable_memory_bytes(trace.usable_memory.count());
  header.set_step_ns(trace.step.count());
  header.set_device_low_bytes(trace.device_low.count());
  header.set_device_expected_bytes(trace.device_expected.count());
  header.set_device_high_bytes(trace.device_high.count());
  header.set_missing(Utf8(trace.missing));
  for (const std::string& setting : trace.allocator) {
    header.add_allocator(Utf8(setting));
  }
  for (const std::string& assumed : trace.assumed) {
    header.add_assumed(Utf8(assumed));
  }
  for (const std::string& missing : trace.not_modelled) {
    header.add_not_modelled(Utf8(missing));
  }
  for (const Lint& lint : trace.lints) {
    wire::Lint& out = *header.add_lints();
    out.set_id(Utf8(lint.id));
    out.set_severity(Utf8(lint.severity));
    out.set_message(Utf8(lint.message));
    out.set_hint(Utf8(lint.hint));
    out.set_cause(Utf8(lint.cause));
  }
  return header;
}

void AddTensors(wire::Tables& tables, std::span<const TraceTensor> tensors) {
  for (const TraceTensor& tensor : tensors) {
    wire::Tensor& row = *tables.add_tensors();
    row.set_name(Utf8(tensor.name));
    row.set_category(std::string(Name(tensor.category)));
    row.set_dtype(std::string(Name(tensor.dtype)));
    row.set_n_bytes(tensor.bytes.count());
    row.set_sharding(Utf8(tensor.sharding));
    row.set_block(Utf8(tensor.layers.block));
    row.set_layer_index(tensor.layers.index);
    row.set_first_layer(tensor.layers.first);
  }
}

void AddSpan(wire::Tables& tables, const Span& span) {
  wire::Span& row = *tables.add_spans();
  row.set_phase(Utf8(span.phase));
  row.set_microbatch(span.microbatch);
  row.set_begin_ns(span.begin.count());
  row.set_end_ns(span.end.count());
  row.set_side(Utf8(span.side));
}

void AddStep(wire::Tables& tables, const StepMark& step) {
  wire::Step& row = *tables.add_steps();
  row.set_kind(Utf8(step.kind));
  row.set_begin_ns(step.begin.count());
  row.set_end_ns(step.end.count());
  row.set_memory_begin(step.memory_begin);
}

wire::Record MemoryRecord(std::span<const MemoryEvent> events) {
  wire::Record record;
  wire::MemoryChunk& chunk = *record.mutable_memory();
  Delta issue, ready, allocator, reserved;
  for (const MemoryEvent& event : events) {
    chunk.add_alloc(event.alloc);
    chunk.add_tensor(event.tensor.index);
    chunk.add_index0(event.index0);
    chunk.add_index1(event.index1);
    chunk.add_issue_ns_delta(issue.Encode(event.issue.count()));
    chunk.add_ready_ns_delta(ready.Encode(event.ready.count()));
    chunk.add_address(event.address);
    chunk.add_span(RowCode(event.span));
    chunk.add_allocator_bytes_delta(allocator.Encode(event.allocator_bytes.count()));
    chunk.add_reserved_bytes_delta(reserved.Encode(event.reserved_bytes.count()));
    chunk.add_stream(RowCode(event.stream));
    chunk.add_waits(event.waits);
  }
  return record;
}

wire::Record SliceRecord(std::span<const Slice> slices) {
  wire::Record record;
  wire::SliceChunk& chunk = *record.mutable_slices();
  Delta start;
  for (const Slice& slice : slices) {
    chunk.add_stream(slice.stream);
    chunk.add_name(slice.name.index);
    chunk.add_start_ns_delta(start.Encode(slice.start.count()));
    chunk.add_duration_ns((slice.end - slice.start).count());
    chunk.add_span(RowCode(slice.span));
  }
  return record;
}

template <class Row>
std::span<const Row> From(const std::vector<Row>& rows, std::size_t written) {
  TIDEMARK_CHECK(written <= rows.size());
  return std::span(rows).subspan(written);
}

/// A file that only grows. Closed by its last owner.
class AppendFile {
 public:
  AppendFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile() { close(descriptor_); }

  Status Write(std::string_view bytes) const {
    while (!bytes.empty()) {
      const ssize_t count = write(descriptor_, bytes.data(), bytes.size());
      if (count < 0 && errno == EINTR) {
        continue;
      }
      if (count < 0) {
        return Error{ErrorCode::machine_cannot, path_, fmt::format("cannot be written ({})", std::strerror(errno)),
                     "is the disk full? What was written before can be read"};
      }
      bytes.remove_prefix(static_cast<std::size_t>(count));
    }
    return Done{};
  }

 private:
  std::string path_;
  int descriptor_;
};

}  // namespace

Result<TraceWriter> TraceWriter::Open(const std::string& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) {
    return Error{ErrorCode::bad_input, path,
                 fmt::format("a file that can be written was expected ({})", std::strerror(errno)),
                 "does the folder exist, and may you write there?"};
  }
  return TraceWriter(
      [file = std::make_shared<AppendFile>(path, descriptor)](std::string_view bytes) { return file->Write(bytes); });
}

Status TraceWriter::Append(const Trace& trace) {
  std::string out;
  if (!written_) {
    written_ = Written{};
    ++traces_;
    wire::Record record;
    *record.mutable_header() = HeaderOf(trace);
    written_->header = record.header().SerializeAsString();
    AppendFrame(out, record);
  }
  AppendAmendment(out, trace);
  AppendTables(out, trace);
  AppendEvents(out, trace);
  return Hand(out);
}

/// Spans and steps that were open when they were written have ended since; of the header, what a run learns at its end.
void TraceWriter::AppendAmendment(std::string& out, const Trace& trace) {
  wire::Record record;
  wire::Amendment& amendment = *record.mutable_amendment();
  const wire::Header header = HeaderOf(trace);
  if (std::string bytes = header.SerializeAsString(); bytes != written_->header) {
    *amendment.mutable_header() = header;
    written_->header = std::move(bytes);
  }
  TIDEMARK_CHECK(written_->span_ends.size() <= trace.spans.size() && written_->step_ends.size() <= trace.steps.size());
  for (std::size_t i = 0; i < written_->span_ends.size(); ++i) {
    if (Nanos& end = written_->span_ends[i]; end != trace.spans[i].end) {
      end = trace.spans[i].end;
      amendment.add_span(static_cast<std::uint32_t>(i));
      amendment.add_span_end_ns(end.count());
    }
  }
  for (std::size_t i = 0; i < written_->step_ends.size(); ++i) {
    if (Nanos& end = written_->step_ends[i]; end != trace.steps[i].end) {
      end = trace.steps[i].end;
      amendment.add_step(static_cast<std::uint32_t>(i));
      amendment.add_step_end_ns(end.count());
    }
  }
  if (amendment.has_header() || amendment.span_size() + amendment.step_size() > 0) {
    AppendFrame(out, record);
  }
}

void TraceWriter::AppendTables(std::string& out, const Trace& trace) {
  wire::Record record;
  wire::Tables& tables = *record.mutable_tables();
  for (const std::string& string : From(trace.strings, written_->strings)) {
    tables.add_strings(Utf8(string));
  }
  AddTensors(tables, From(trace.tensors, written_->tensors));
  for (const TraceStream& stream : From(trace.streams, written_->streams)) {
    wire::Stream& row = *tables.add_streams();
    row.set_name(stream.name);
    row.set_kind(stream.kind);
  }
  for (const Span& span : From(trace.spans, written_->span_ends.size())) {
    AddSpan(tables, span);
    written_->span_ends.push_back(span.end);
  }
  for (const StepMark& step : From(trace.steps, written_->step_ends.size())) {
    AddStep(tables, step);
    written_->step_ends.push_back(step.end);
  }
  for (const InstantMark& mark : From(trace.marks, written_->marks)) {
    wire::Mark& row = *tables.add_marks();
    row.set_name(mark.name);
    row.set_events(mark.events);
  }
  written_->strings = trace.strings.size();
  written_->tensors = trace.tensors.size();
  written_->streams = trace.streams.size();
  written_->marks = trace.marks.size();
  if (tables.ByteSizeLong() > 0) {
    AppendFrame(out, record);
  }
}

void TraceWriter::AppendEvents(std::string& out, const Trace& trace) {
  const auto memory = From(trace.memory, written_->memory);
  for (std::size_t at = 0; at < memory.size(); at += kChunk) {
    AppendFrame(out, MemoryRecord(memory.subspan(at, std::min(kChunk, memory.size() - at))));
  }
  const auto slices = From(trace.slices, written_->slices);
  for (std::size_t at = 0; at < slices.size(); at += kChunk) {
    AppendFrame(out, SliceRecord(slices.subspan(at, std::min(kChunk, slices.size() - at))));
  }
  written_->memory = trace.memory.size();
  written_->slices = trace.slices.size();
}

Status TraceWriter::EndTrace() {
  written_.reset();
  return failed_ ? Status(*failed_) : Status(Done{});
}

Status TraceWriter::Close() {
  wire::Record end;
  end.mutable_end()->set_traces(traces_);
  std::string out;
  AppendFrame(out, end);
  TIDEMARK_TRY(Hand(out));
  closed_ = true;
  return Done{};
}

Status TraceWriter::Hand(std::string_view bytes) {
  TIDEMARK_CHECK(!closed_);
  if (failed_) {
    return *failed_;
  }
  Status handed = opened_ ? sink_(bytes) : sink_(std::string(kTraceMagic).append(bytes));
  opened_ = true;
  if (!handed) {
    failed_ = handed.error();
  }
  return handed;
}

}  // namespace tidemark
