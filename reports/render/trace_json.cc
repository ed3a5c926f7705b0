// SPDX-License-Identifier: Apache-2.0
#include "reports/render/trace_json.h"

#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

/// `"name":[column(row), ...]` of plain integers. Written by hand: half a million Json values would cost more than all
/// else.
template <class Rows, class Cell>
void AppendColumn(std::string& out, std::string_view name, const Rows& rows, Cell cell) {
  fmt::format_to(std::back_inserter(out), "\"{}\":[", name);
  bool first = true;
  for (const auto& row : rows) {
    fmt::format_to(std::back_inserter(out), "{}{}", first ? "" : ",", cell(row));
    first = false;
  }
  out += ']';
}

/// Turns a column of totals into differences to the row before.
template <class Value>
auto Differences(Value value) {
  return [value, last = std::int64_t{0}](const auto& row) mutable {
    const std::int64_t now = value(row);
    const std::int64_t difference = now - last;
    last = now;
    return difference;
  };
}

std::string MemoryJson(const Trace& trace) {
  using Event = MemoryEvent;
  std::string out = "{";
  AppendColumn(out, "tensor", trace.memory, [](const Event& event) {
    const auto id = static_cast<std::int64_t>(event.tensor.index);
    return event.alloc ? id : -id - 1;
  });
  out += ',';
  AppendColumn(out, "issue", trace.memory, Differences([](const Event& event) { return event.issue.count(); }));
  out += ',';
  AppendColumn(out, "ready", trace.memory, [](const Event& event) { return (event.ready - event.issue).count(); });
  out += ',';
  AppendColumn(out, "span", trace.memory,
               [](const Event& event) { return event.span == kNoSpan ? -1 : int{event.span}; });
  out += ',';
  AppendColumn(out, "allocator", trace.memory,
               Differences([](const Event& event) { return event.allocator_bytes.count(); }));
  out += ',';
  AppendColumn(out, "reserved", trace.memory,
               Differences([](const Event& event) { return event.reserved_bytes.count(); }));
  return out + "}";
}

std::string SlicesJson(const Trace& trace) {
  std::string out = "{";
  AppendColumn(out, "stream", trace.slices, [](const Slice& slice) { return slice.stream; });
  out += ',';
  AppendColumn(out, "name", trace.slices, [](const Slice& slice) { return slice.name.index; });
  out += ',';
  AppendColumn(out, "start", trace.slices, Differences([](const Slice& slice) { return slice.start.count(); }));
  out += ',';
  AppendColumn(out, "length", trace.slices, [](const Slice& slice) { return (slice.end - slice.start).count(); });
  return out + "}";
}

Json TablesJson(const Trace& trace) {
  Json json = {{"role", trace.role},
               {"ranks", trace.ranks},
               {"capacity", trace.device_memory.count()},
               {"step", trace.step.count()},
               {"strings", trace.strings}};
  json["tensors"] = Json::array();
  for (const TraceTensor& tensor : trace.tensors) {
    json["tensors"].push_back(
        Json::array({tensor.name, Name(tensor.category), tensor.bytes.count(), Name(tensor.dtype)}));
  }
  json["streams"] = Json::array();
  for (const TraceStream& stream : trace.streams) {
    json["streams"].push_back(Json::array({stream.name, stream.kind}));
  }
  json["spans"] = Json::array();
  for (const Span& span : trace.spans) {
    json["spans"].push_back(
        Json::array({span.phase, span.microbatch, span.begin.count(), span.end.count(), span.side}));
  }
  json["steps"] = Json::array();
  for (const StepMark& step : trace.steps) {
    json["steps"].push_back(Json::array({step.kind, step.begin.count(), step.end.count(), step.memory_begin}));
  }
  return json;
}

}  // namespace

std::string TraceJson(const Trace& trace, Streams streams) {
  static const Trace nothing;
  const std::string tables = TablesJson(trace).dump(-1, ' ', false, Json::error_handler_t::replace);
  std::string out = tables.substr(0, tables.size() - 1);
  out += ",\"memory\":" + MemoryJson(trace) + ",\"slices\":";
  out += SlicesJson(streams == Streams::drawn ? trace : nothing) + "}";
  std::string safe;
  safe.reserve(out.size());
  for (const char c : out) {  // "<" occurs within strings only; "</script>" must not end the element
    safe += c == '<' ? std::string_view("\\u003c") : std::string_view(&c, 1);
  }
  return safe;
}

}  // namespace tidemark
