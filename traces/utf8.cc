// SPDX-License-Identifier: Apache-2.0
#include "traces/utf8.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace tidemark {
namespace {

void MakeUtf8(std::string& text) { text = Utf8(text); }

}  // namespace

std::string Utf8(const std::string& text) {
  if (std::ranges::all_of(text, [](char byte) { return static_cast<unsigned char>(byte) < 0x80; })) {
    return text;
  }
  using Json = nlohmann::json;
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

void MakeUtf8(Trace& trace) {
  for (std::string* text :
       {&trace.origin, &trace.clock, &trace.tool_version, &trace.title, &trace.job_yaml, &trace.role, &trace.missing}) {
    MakeUtf8(*text);
  }
  for (std::vector<std::string>* texts : {&trace.strings, &trace.allocator, &trace.assumed, &trace.not_modelled}) {
    for (std::string& text : *texts) {
      MakeUtf8(text);
    }
  }
  for (TraceTensor& tensor : trace.tensors) {
    MakeUtf8(tensor.name);
    MakeUtf8(tensor.sharding);
    MakeUtf8(tensor.layers.block);
  }
  for (TraceStream& stream : trace.streams) {
    MakeUtf8(stream.name);
    MakeUtf8(stream.kind);
  }
  for (Span& span : trace.spans) {
    MakeUtf8(span.phase);
    MakeUtf8(span.side);
  }
  for (StepMark& step : trace.steps) {
    MakeUtf8(step.kind);
  }
  for (InstantMark& mark : trace.marks) {
    MakeUtf8(mark.name);
  }
  for (Lint& lint : trace.lints) {
    for (std::string* text : {&lint.id, &lint.severity, &lint.message, &lint.hint, &lint.cause}) {
      MakeUtf8(*text);
    }
  }
}

}  // namespace tidemark
