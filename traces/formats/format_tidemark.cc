// SPDX-License-Identifier: Apache-2.0
//
// Tidemark's own trace file. A magic line, then frames:
//
//   "TIDEMARK TRACE 1\n"                         17 bytes; the number is the version of the framing
//   u32 length | u32 crc32(payload) | payload    little endian; the payload is one wire::Record (traces/trace.proto)
//
// A frame is complete or it does not count, so a file that was cut anywhere, by a crash or a full disk, reads up to its
// last whole frame and says so. Within a trace, tables come before the events that use them; that makes every prefix a
// sound trace.
#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/text.h"
#include "traces/formats/format.h"
#include "traces/trace.pb.h"

namespace tidemark {
namespace {

constexpr std::string_view kFamily = "TIDEMARK TRACE ";
constexpr std::string_view kMagic = "TIDEMARK TRACE 1\n";
constexpr std::size_t kFrameHead = 8;
constexpr std::size_t kChunk = 4096;  ///< events of one record
constexpr std::size_t kLargestFrame = std::size_t{1} << 30;

std::uint32_t Checksum(std::string_view payload) {
  return static_cast<std::uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(payload.data()), static_cast<uInt>(payload.size())));
}

void AppendWord(std::string& out, std::uint32_t word) {
  for (int shift = 0; shift < 32; shift += 8) {
    out += static_cast<char>((word >> shift) & 0xffU);
  }
}

std::uint32_t WordAt(std::string_view bytes, std::size_t at) {
  std::uint32_t word = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    word |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return word;
}

void AppendFrame(std::string& out, const wire::Record& record) {
  const std::string payload = record.SerializeAsString();
  TIDEMARK_CHECK(payload.size() < kLargestFrame);
  AppendWord(out, static_cast<std::uint32_t>(payload.size()));
  AppendWord(out, Checksum(payload));
  out += payload;
}

/// Differences to the last value; unsigned arithmetic, since hostile files may hold anything.
class Delta {
 public:
  std::int64_t Encode(std::int64_t value) {
    const std::uint64_t difference = static_cast<std::uint64_t>(value) - static_cast<std::uint64_t>(last_);
    last_ = value;
    return static_cast<std::int64_t>(difference);
  }
  std::int64_t Decode(std::int64_t difference) {
    last_ = static_cast<std::int64_t>(static_cast<std::uint64_t>(last_) + static_cast<std::uint64_t>(difference));
    return last_;
  }

 private:
  std::int64_t last_ = 0;
};

wire::Record HeaderRecord(const Trace& trace) {
  wire::Record record;
  wire::Header& header = *record.mutable_header();
  header.set_origin(trace.origin);
  header.set_tool_version(trace.tool_version);
  header.set_title(trace.title);
  header.set_job_yaml(trace.job_yaml);
  header.set_role(trace.role);
  header.set_ranks(trace.ranks);
  header.set_device_memory_bytes(trace.device_memory.count());
  header.set_step_ns(trace.step.count());
  header.set_device_low_bytes(trace.device_low.count());
  header.set_device_expected_bytes(trace.device_expected.count());
  header.set_device_high_bytes(trace.device_high.count());
  for (const Lint& lint : trace.lints) {
    wire::Lint& out = *header.add_lints();
    out.set_id(lint.id);
    out.set_severity(lint.severity);
    out.set_message(lint.message);
    out.set_hint(lint.hint);
    out.set_cause(lint.cause);
  }
  return record;
}

wire::Record TablesRecord(const Trace& trace) {
  wire::Record record;
  wire::Tables& tables = *record.mutable_tables();
  for (const std::string& string : trace.strings) {
    tables.add_strings(string);
  }
  for (const TraceTensor& tensor : trace.tensors) {
    wire::Tensor& out = *tables.add_tensors();
    out.set_name(tensor.name);
    out.set_category(std::string(Name(tensor.category)));
    out.set_dtype(std::string(Name(tensor.dtype)));
    out.set_n_bytes(tensor.bytes.count());
    out.set_sharding(tensor.sharding);
  }
  for (const TraceStream& stream : trace.streams) {
    wire::Stream& out = *tables.add_streams();
    out.set_name(stream.name);
    out.set_kind(stream.kind);
  }
  for (const Span& span : trace.spans) {
    wire::Span& out = *tables.add_spans();
    out.set_phase(span.phase);
    out.set_microbatch(span.microbatch);
    out.set_begin_ns(span.begin.count());
    out.set_end_ns(span.end.count());
    out.set_side(span.side);
  }
  for (const StepMark& step : trace.steps) {
    wire::Step& out = *tables.add_steps();
    out.set_kind(step.kind);
    out.set_begin_ns(step.begin.count());
    out.set_end_ns(step.end.count());
    out.set_memory_begin(step.memory_begin);
  }
  for (const InstantMark& mark : trace.marks) {
    wire::Mark& out = *tables.add_marks();
    out.set_name(mark.name);
    out.set_events(mark.events);
  }
  return record;
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
    chunk.add_span(event.span == 0xffff ? 0U : event.span + 1U);
    chunk.add_allocator_bytes_delta(allocator.Encode(event.allocator_bytes.count()));
    chunk.add_reserved_bytes_delta(reserved.Encode(event.reserved_bytes.count()));
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
  }
  return record;
}

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
    if (record.has_memory()) {
      return AddMemory(record.memory());
    }
    return record.has_slices() ? AddSlices(record.slices()) : std::string();  // unknown records are newer than we are
  }

  bool ended() const { return ended_; }
  std::vector<Trace>& traces() { return traces_; }

 private:
  std::string AddHeader(const wire::Header& header) {
    Trace trace;
    trace.origin = header.origin();
    trace.tool_version = header.tool_version();
    trace.title = header.title();
    trace.job_yaml = header.job_yaml();
    trace.role = header.role();
    trace.ranks = header.ranks();
    trace.device_memory = Bytes(header.device_memory_bytes());
    trace.step = Nanos(header.step_ns());
    trace.device_low = Bytes(header.device_low_bytes());
    trace.device_expected = Bytes(header.device_expected_bytes());
    trace.device_high = Bytes(header.device_high_bytes());
    for (const wire::Lint& lint : header.lints()) {
      trace.lints.push_back({lint.id(), lint.severity(), lint.message(), lint.hint(), lint.cause()});
    }
    traces_.push_back(std::move(trace));
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
      trace.tensors.push_back({tensor.name(), *category, *dtype, Bytes(tensor.n_bytes()), tensor.sharding()});
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
      event.span = static_cast<std::uint16_t>(std::min(chunk.span(i) - 1U, 0xffffU));  // 0 wraps around to "none"
      event.allocator_bytes = Bytes(allocator.Decode(chunk.allocator_bytes_delta(i)));
      event.reserved_bytes = Bytes(reserved.Decode(chunk.reserved_bytes_delta(i)));
      traces_.back().memory.push_back(event);
    }
    return {};
  }

  std::string AddSlices(const wire::SliceChunk& chunk) {
    const int rows = chunk.stream_size();
    if (chunk.name_size() != rows || chunk.start_ns_delta_size() != rows || chunk.duration_ns_size() != rows) {
      return "the columns of a slice record differ in length";
    }
    Delta start;
    for (int i = 0; i < rows; ++i) {
      const std::int64_t begin = start.Decode(chunk.start_ns_delta(i));
      std::int64_t end = 0;
      if (chunk.stream(i) > 0xffff || __builtin_add_overflow(begin, chunk.duration_ns(i), &end)) {
        return "a slice lies outside of every possible time or stream";
      }
      traces_.back().slices.push_back(
          {static_cast<std::uint16_t>(chunk.stream(i)), TraceStringId{chunk.name(i)}, Nanos(begin), Nanos(end)});
    }
    return {};
  }

  std::vector<Trace> traces_;
  bool ended_ = false;
};

/// The payload of the frame at `at`; nothing where the file was cut or damaged there.
std::optional<std::string_view> FrameAt(std::string_view bytes, std::size_t at) {
  if (bytes.size() - at < kFrameHead) {
    return std::nullopt;
  }
  const std::size_t length = WordAt(bytes, at);
  if (length > kLargestFrame || length > bytes.size() - at - kFrameHead) {
    return std::nullopt;
  }
  const std::string_view payload = bytes.substr(at + kFrameHead, length);
  return Checksum(payload) == WordAt(bytes, at + 4) ? std::optional(payload) : std::nullopt;
}

std::string CutNote(const std::vector<Trace>& traces) {
  std::size_t events = 0;
  for (const Trace& trace : traces) {
    events += trace.memory.size() + trace.slices.size();
  }
  return fmt::format("the file was cut off or damaged after {} events", Grouped(static_cast<std::int64_t>(events)));
}

class TidemarkFormat : public TraceFormat {
 public:
  std::string_view name() const override { return "tidemark"; }
  std::string_view summary() const override { return "Tidemark's own trace: checksummed frames of Protobuf records"; }
  bool Sniff(std::string_view head) const override { return head.starts_with(kFamily); }

  Result<TraceFile> Read(std::string_view bytes) const override {
    if (!bytes.starts_with(kMagic)) {
      return BadInput("a Tidemark trace of format version 1 was expected",
                      "a newer tidemark may have written this file");
    }
    Assembler assembler;
    std::size_t at = kMagic.size();
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
    std::string out(kMagic);
    for (const Trace& trace : traces) {
      AppendFrame(out, HeaderRecord(trace));
      AppendFrame(out, TablesRecord(trace));
      const std::span<const MemoryEvent> memory(trace.memory);
      for (std::size_t at = 0; at < memory.size(); at += kChunk) {
        AppendFrame(out, MemoryRecord(memory.subspan(at, std::min(kChunk, memory.size() - at))));
      }
      const std::span<const Slice> slices(trace.slices);
      for (std::size_t at = 0; at < slices.size(); at += kChunk) {
        AppendFrame(out, SliceRecord(slices.subspan(at, std::min(kChunk, slices.size() - at))));
      }
    }
    wire::Record end;
    end.mutable_end()->set_traces(traces.size());
    AppendFrame(out, end);
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
    }
    file.traces = std::move(assembler.traces());
    for (const Trace& trace : file.traces) {
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
