// SPDX-License-Identifier: Apache-2.0
#include "reports/render/trace_json.h"

#include <fmt/format.h>
#include <yaml-cpp/binary.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

/// Numbers of a narrow type as base64 of their bytes, lowest first.
template <class Number>
std::string Packed(std::string_view type, const std::vector<std::int64_t>& values) {
  using Bits =
      std::conditional_t<sizeof(Number) == 1, std::uint8_t,
                         std::conditional_t<sizeof(Number) == 2, std::uint16_t,
                                            std::conditional_t<sizeof(Number) == 4, std::uint32_t, std::uint64_t>>>;
  std::vector<unsigned char> bytes;
  bytes.reserve(values.size() * sizeof(Number));
  for (const std::int64_t value : values) {
    const auto bits = std::bit_cast<Bits>(static_cast<Number>(value));
    for (std::size_t i = 0; i < sizeof(Number); ++i) {
      bytes.push_back(static_cast<unsigned char>(bits >> (8 * i)));
    }
  }
  return fmt::format("{{\"type\":\"{}\",\"values\":\"{}\"}}", type, YAML::EncodeBase64(bytes.data(), bytes.size()));
}

template <class Number>
bool Holds(std::int64_t least, std::int64_t most) {
  return std::numeric_limits<Number>::min() <= least && most <= std::numeric_limits<Number>::max();
}

/// `"name":{...}` with one number per row, of the narrowest type that holds all of them: a page with a million events
/// must open at once, and a browser makes an array of packed numbers many times faster than it parses their digits.
/// Beyond 32 bits it is f64: what JavaScript calculates with.
template <class Rows, class Cell>
void AppendColumn(std::string& out, std::string_view name, const Rows& rows, Cell cell) {
  std::vector<std::int64_t> values;
  values.reserve(rows.size());
  std::int64_t least = 0, most = 0;
  for (const auto& row : rows) {
    values.push_back(cell(row));
    least = std::min(least, values.back());
    most = std::max(most, values.back());
  }
  out += fmt::format("{}\"{}\":", out.ends_with('{') ? "" : ",", name);
  out += Holds<std::int8_t>(least, most)    ? Packed<std::int8_t>("i8", values)
         : Holds<std::int16_t>(least, most) ? Packed<std::int16_t>("i16", values)
         : Holds<std::int32_t>(least, most) ? Packed<std::int32_t>("i32", values)
                                            : Packed<double>("f64", values);
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

/// The layers that a trace knows, blocks in the order of its tensors.
class Layers {
 public:
  explicit Layers(const Trace& trace) : trace_(trace) {
    for (const TraceTensor& tensor : trace.tensors) {
      if (!tensor.layers.block.empty()) {
        blocks_.emplace(tensor.layers.block, blocks_.size());
      }
    }
    for (const MemoryEvent& event : trace.memory) {
      if (const std::optional<Key> key = KeyOf(event)) {
        places_.emplace(*key, 0);
      }
    }
    for (std::size_t next = 0; auto& [key, place] : places_) {
      place = next++;
    }
  }

  bool empty() const { return places_.empty(); }
  /// -1: of no layer.
  std::int64_t Of(const MemoryEvent& event) const {
    const std::optional<Key> key = KeyOf(event);
    return key ? static_cast<std::int64_t>(places_.at(*key)) : -1;
  }
  Json Names() const {
    std::vector<const std::string*> names(blocks_.size());
    for (const auto& [name, place] : blocks_) {
      names[place] = &name;
    }
    Json json = Json::array();
    for (const auto& [key, place] : places_) {
      json.push_back(Json::array({*names[key.first], key.second}));
    }
    return json;
  }

 private:
  using Key = std::pair<std::size_t, std::int64_t>;  ///< block, number of the layer

  std::optional<Key> KeyOf(const MemoryEvent& event) const {
    const FamilyLayers& layers = trace_.tensors[event.tensor.index].layers;
    if (layers.block.empty()) {
      return std::nullopt;
    }
    return Key{blocks_.at(layers.block), layers.first + (layers.index == 0 ? event.index0 : event.index1)};
  }

  const Trace& trace_;
  std::map<std::string, std::size_t> blocks_;
  std::map<Key, std::size_t> places_;
};

std::string MemoryJson(const Trace& trace, const Layers& layers) {
  using Event = MemoryEvent;
  std::string out = "{";
  AppendColumn(out, "tensor", trace.memory, [](const Event& event) {
    const auto id = static_cast<std::int64_t>(event.tensor.index);
    return event.alloc ? id : -id - 1;
  });
  AppendColumn(out, "issue", trace.memory, Differences([](const Event& event) { return event.issue.count(); }));
  AppendColumn(out, "ready", trace.memory, [](const Event& event) { return (event.ready - event.issue).count(); });
  AppendColumn(out, "span", trace.memory,
               [](const Event& event) { return event.span == kNoSpan ? -1 : int{event.span}; });
  AppendColumn(out, "allocator", trace.memory,
               Differences([](const Event& event) { return event.allocator_bytes.count(); }));
  AppendColumn(out, "reserved", trace.memory,
               Differences([](const Event& event) { return event.reserved_bytes.count(); }));
  if (!layers.empty()) {
    AppendColumn(out, "layer", trace.memory, [&](const Event& event) { return layers.Of(event); });
  }
  return out + "}";
}

/// In the order of their starts, which is how a picture draws them.
std::string SlicesJson(const Trace& trace) {
  std::vector<Slice> slices = trace.slices;
  std::stable_sort(slices.begin(), slices.end(), [](const Slice& a, const Slice& b) { return a.start < b.start; });
  std::string out = "{";
  AppendColumn(out, "stream", slices, [](const Slice& slice) { return slice.stream; });
  AppendColumn(out, "name", slices, [](const Slice& slice) { return slice.name.index; });
  AppendColumn(out, "start", slices, Differences([](const Slice& slice) { return slice.start.count(); }));
  AppendColumn(out, "length", slices, [](const Slice& slice) { return (slice.end - slice.start).count(); });
  return out + "}";
}

/// "<" occurs within strings only; "</script>" must not end the element.
std::string WithoutTags(std::string_view json) {
  std::string safe;
  safe.reserve(json.size());
  for (const char c : json) {
    safe += c == '<' ? std::string_view("\\u003c") : std::string_view(&c, 1);
  }
  return safe;
}

Json TablesJson(const Trace& trace) {
  const bool shares = trace.usable_memory > Bytes(0);
  Json json = {{"role", trace.role},
               {"ranks", trace.ranks},
               {"capacity", (shares ? trace.usable_memory : trace.device_memory).count()},
               {"capacity_name", shares ? "usable memory" : "device memory"},
               {"step", trace.step.count()},
               {"strings", trace.strings}};
  json["tensors"] = Json::array();
  for (const TraceTensor& tensor : trace.tensors) {
    json["tensors"].push_back(
        Json::array({tensor.name, Name(tensor.category), tensor.bytes.count(),
                     IsTold(tensor.dtype, tensor.category) ? Name(tensor.dtype) : std::string_view()}));
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
  const bool is_drawn = streams == Streams::drawn;
  const Layers layers(is_drawn ? trace : nothing);
  Json json = TablesJson(trace);
  json["layers"] = layers.Names();
  std::string out = WithoutTags(json.dump(-1, ' ', false, Json::error_handler_t::replace));
  out.pop_back();
  out += ",\"memory\":" + MemoryJson(trace, layers);
  out += ",\"slices\":" + SlicesJson(is_drawn ? trace : nothing);
  return out + "}";
}

}  // namespace tidemark
