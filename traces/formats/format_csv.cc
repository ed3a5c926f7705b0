// SPDX-License-Identifier: Apache-2.0
//
// Comma-separated values (RFC 4180) for spreadsheets and data frames: a line for each memory event, in the order of
// traces and of issue. What a trace does not know is an empty field.
#include <fmt/compile.h>
#include <fmt/format.h>

#include <iterator>
#include <string>
#include <vector>

#include "base/csv.h"
#include "traces/formats/format.h"
#include "traces/place.h"

namespace tidemark {
namespace {

constexpr std::string_view kHeader =
    "origin,role,event,operation,tensor,index0,index1,category,dtype,sharding,bytes,issue_ns,ready_ns,waits,stream,"
    "address,phase,microbatch,side,step,allocated_bytes,allocator_bytes,reserved_bytes\n";

/// The fields of a table's rows, made once: there are a thousand events for each of them.
struct Fields {
  std::vector<std::string> tensors;        ///< "tensor"
  std::vector<std::string> properties;     ///< "category,dtype,sharding,bytes"
  std::vector<std::string> streams;        ///< the last one: not known
  std::vector<std::string> phases, sides;  ///< the last one: none
};

Fields MakeFields(const Trace& trace) {
  Fields fields;
  for (const TraceTensor& tensor : trace.tensors) {
    fields.tensors.push_back(CsvField(tensor.name));
    fields.properties.push_back(fmt::format("{},{},{},{}", Name(tensor.category),
                                            IsTold(tensor.dtype, tensor.category) ? Name(tensor.dtype) : "",
                                            CsvField(tensor.sharding), tensor.bytes.count()));
  }
  for (const TraceStream& stream : trace.streams) {
    fields.streams.push_back(CsvField(stream.name));
  }
  for (const Span& span : trace.spans) {
    fields.phases.push_back(fmt::format("{},{}", CsvField(span.phase),
                                        span.microbatch < 0 ? std::string() : fmt::to_string(span.microbatch)));
    fields.sides.push_back(CsvField(span.side));
  }
  fields.streams.emplace_back();
  fields.phases.emplace_back(",");
  fields.sides.emplace_back();
  return fields;
}

const std::string& FieldOf(const std::vector<std::string>& fields, std::uint16_t row) {
  return row < fields.size() - 1 ? fields[row] : fields.back();
}

void AppendTrace(const Trace& trace, std::string& out) {
  const std::string who = fmt::format("{},{},", CsvField(trace.origin), CsvField(trace.role));
  const Fields fields = MakeFields(trace);
  const bool tells_blocks = Tells(trace, &MemoryEvent::allocator_bytes);
  const bool tells_reserved = Tells(trace, &MemoryEvent::reserved_bytes);
  Bytes allocated;
  for (std::size_t i = 0; i < trace.memory.size(); ++i) {
    const MemoryEvent& event = trace.memory[i];
    const Bytes bytes = trace.tensors[event.tensor.index].bytes;
    allocated = event.alloc ? allocated + bytes : allocated - bytes;
    const std::int64_t step = StepOf(trace, i);
    const auto at = std::back_inserter(out);
    fmt::format_to(at, FMT_COMPILE("{}{},{},{},{},{},{},{},{},{},{},"), who, i, event.alloc ? "alloc" : "free",
                   fields.tensors[event.tensor.index], event.index0, event.index1,
                   fields.properties[event.tensor.index], event.issue.count(), event.ready.count(),
                   event.waits ? "true" : "false", FieldOf(fields.streams, event.stream));
    if (event.address != 0) {
      fmt::format_to(at, FMT_COMPILE("{:#x}"), event.address);
    }
    fmt::format_to(at, FMT_COMPILE(",{},{},"), FieldOf(fields.phases, event.span), FieldOf(fields.sides, event.span));
    if (step >= 0) {
      fmt::format_to(at, FMT_COMPILE("{}"), step);
    }
    fmt::format_to(at, FMT_COMPILE(",{},"), allocated.count());
    if (tells_blocks) {
      fmt::format_to(at, FMT_COMPILE("{}"), event.allocator_bytes.count());
    }
    out += ',';
    if (tells_reserved) {
      fmt::format_to(at, FMT_COMPILE("{}"), event.reserved_bytes.count());
    }
    out += '\n';
  }
}

class CsvFormat : public TraceFormat {
 public:
  std::string_view name() const override { return "csv"; }
  std::string_view summary() const override { return "comma-separated values, a line for each memory event"; }
  bool reads() const override { return false; }
  bool writes() const override { return true; }
  std::vector<std::string_view> endings() const override { return {".csv"}; }
  bool text() const override { return true; }
  bool Sniff(std::string_view) const override { return false; }
  Result<TraceFile> Read(std::string_view) const override {
    return BadInput("comma-separated values are only written", "read the trace that they were made of");
  }

  Result<std::string> Write(std::span<const Trace> traces) const override {
    std::string out(kHeader);
    for (const Trace& trace : traces) {
      AppendTrace(trace, out);
    }
    return out;
  }
};

}  // namespace

std::unique_ptr<TraceFormat> FormatCsv() { return std::make_unique<CsvFormat>(); }

}  // namespace tidemark
