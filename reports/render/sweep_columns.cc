// SPDX-License-Identifier: Apache-2.0
#include "reports/render/sweep_columns.h"

#include <fmt/format.h>

#include <string>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

/// A metric's number as text; "null" where it is not known.
using MetricText = std::function<std::string(const SweepRow&)>;

struct Metric {
  std::string_view name;
  MetricText text;
  bool is_asked_for_only = false;  ///< there only where it is one of the front's two
};

std::string Number(std::int64_t number) { return fmt::format("{}", number); }

Metric Part(std::string_view name, Nanos TimeReport::*part) {
  return {name, [part](const SweepRow& row) { return Number((row.time.*part).count()); }, true};
}

std::vector<Metric> Metrics() {
  return {{"allocated_bytes", [](const SweepRow& row) { return Number(row.allocated.count()); }},
          {"reserved_bytes",
           [](const SweepRow& row) { return row.reserved ? Number(row.reserved->count()) : std::string("null"); }},
          {"device_high_bytes", [](const SweepRow& row) { return Number(row.device.high.count()); }},
          {"host_bytes", [](const SweepRow& row) { return Number(row.host.count()); }, true},
          {"step_ns", [](const SweepRow& row) { return Number(row.time.step.count()); }},
          {"tokens_per_s_per_gpu", [](const SweepRow& row) { return fmt::format("{:.6g}", row.tokens_per_s_per_gpu); }},
          {"mfu", [](const SweepRow& row) { return row.mfu ? fmt::format("{:.5g}", *row.mfu) : std::string("null"); }},
          Part("compute_ns", &TimeReport::compute),
          Part("recompute_ns", &TimeReport::recompute),
          Part("exposed_communication_ns", &TimeReport::exposed_communication),
          Part("bubble_ns", &TimeReport::bubble),
          Part("optimizer_ns", &TimeReport::optimizer),
          Part("host_ns", &TimeReport::host)};
}

/// Written by hand: a million Json values would cost more than all else.
template <class Text>
std::string Column(const std::vector<SweepRow>& rows, Text text) {
  std::string out = "[";
  for (const SweepRow& row : rows) {
    out += out.size() > 1 ? "," : "";
    out += text(row);
  }
  return out + "]";
}

/// JSON whose text a browser does not take for markup.
std::string ScriptJson(const Json& json) {
  std::string out;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    out += c == '<' ? std::string("\\u003c") : std::string(1, c);
  }
  return out;
}

std::string KeyColumn(const SweepReport& report, std::size_t key) {
  std::map<std::string, std::size_t> numbers;
  Json values = Json::array();
  const std::string indices = Column(report.rows, [&](const SweepRow& row) {
    const auto [found, is_new] = numbers.try_emplace(row.values.at(key), numbers.size());
    if (is_new) {
      values.push_back(found->first);
    }
    return fmt::format("{}", found->second);
  });
  return fmt::format("{{\"name\":{},\"values\":{},\"of\":{}}}", ScriptJson(report.keys.at(key)), ScriptJson(values),
                     indices);
}

bool IsDrawn(const Metric& metric, const SweepReport& report) {
  const bool asked_for = metric.name == report.x || metric.name == report.y;
  const bool is_known =
      metric.name != "reserved_bytes" ||
      std::any_of(report.rows.begin(), report.rows.end(), [](const SweepRow& row) { return row.reserved.has_value(); });
  return asked_for || (is_known && !metric.is_asked_for_only);
}

}  // namespace

std::string SweepColumns(const SweepReport& report) {
  std::string out = fmt::format(
      "{{\"x\":{},\"y\":{},\"device_memory\":{},\"rows\":{},\"keys\":[", ScriptJson(report.x), ScriptJson(report.y),
      report.device_memory && !report.shares_device ? std::to_string(report.device_memory->count()) : "null",
      report.rows.size());
  for (std::size_t key = 0; key < report.keys.size(); ++key) {
    out += (key > 0 ? "," : "") + KeyColumn(report, key);
  }
  out += "],\"metrics\":{";
  bool first = true;
  for (const Metric& metric : Metrics()) {
    if (IsDrawn(metric, report)) {
      fmt::format_to(std::back_inserter(out), "{}\"{}\":{}", first ? "" : ",", metric.name,
                     Column(report.rows, metric.text));
      first = false;
    }
  }
  const auto flag = [&](bool SweepRow::*member) {
    return Column(report.rows, [member](const SweepRow& row) { return row.*member ? "1" : "0"; });
  };
  return out + "},\"fits\":" + flag(&SweepRow::fits) + ",\"pareto\":" + flag(&SweepRow::pareto) + "}";
}

}  // namespace tidemark
