// SPDX-License-Identifier: Apache-2.0
#include "reports/check/baseline.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "reports/check/json_document.h"
#include "reports/check/live_json.h"
#include "reports/summarise/job_differences.h"

namespace tidemark {
namespace {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

constexpr const char* kSchema = "tidemark.baseline/1";
constexpr const char* kPredicted = "predict";
constexpr const char* kMeasured = "run";

/// The job's keys are sorted, wherever they come from.
OrderedJson PeakJson(const ObservedPeak& observed) {
  OrderedJson json = {{"mode", observed.measured ? kMeasured : kPredicted},
                      {"steps", observed.steps},
                      {"peak_bytes", observed.peak.allocated.count()},
                      {"at", observed.at}};
  if (observed.measured) {
    json["hardware"] = observed.hardware;
  }
  json["live"] = LiveOf(observed.peak);
  json["job"] = Json::parse(observed.job);
  return json;
}

OrderedJson EntryJson(const BaselineEntry& entry) {
  OrderedJson json = {{"reason", entry.reason}, {"version", entry.version}};
  json.update(PeakJson(entry.peak));
  return json;
}

Result<BaselineEntry> ReadEntry(const Json& json) {
  BaselineEntry entry;
  TIDEMARK_ASSIGN(const std::string mode, TextAt(json, "mode"));
  if (mode != kPredicted && mode != kMeasured) {
    return BadKey("mode", fmt::format("expected {} or {}, found '{}'", kPredicted, kMeasured, mode.substr(0, 60)));
  }
  entry.peak.measured = mode == kMeasured;
  TIDEMARK_ASSIGN(entry.peak.steps, NumberAt(json, "steps"));
  TIDEMARK_ASSIGN(entry.peak.peak, ReadPeak(json, "peak_bytes"));
  TIDEMARK_ASSIGN(entry.peak.at, TextAt(json, "at"));
  TIDEMARK_ASSIGN(const Json job, ObjectAt(json, "job"));
  entry.peak.job = job.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (entry.peak.measured) {
    TIDEMARK_ASSIGN(entry.peak.hardware, ReadHardware(json));
  }
  TIDEMARK_ASSIGN(entry.reason, TextAt(json, "reason"));
  TIDEMARK_ASSIGN(entry.version, TextAt(json, "version"));
  return entry;
}

}  // namespace

Result<Baseline> ParseBaseline(std::string_view text, const std::string& path) {
  TIDEMARK_ASSIGN(const Json json, ParseDocument(text, path, kSchema));
  Result<Json> scenarios = ObjectAt(json, "scenarios");
  if (!scenarios) {
    return std::move(scenarios).At(path).error();
  }
  Baseline baseline;
  for (const auto& [name, value] : scenarios->items()) {
    Result<BaselineEntry> entry = ReadEntry(value);
    if (!entry) {
      return std::move(entry).At(fmt::format("{}: scenario '{}'", path, name)).error();
    }
    baseline.emplace(name, std::move(*entry));
  }
  return baseline;
}

std::string BaselineText(const Baseline& baseline) {
  OrderedJson scenarios = OrderedJson::object();
  for (const auto& [name, entry] : baseline) {
    scenarios[name] = EntryJson(entry);
  }
  return ReviewableText({{"schema", kSchema}, {"scenarios", std::move(scenarios)}});
}

bool Renew(Baseline& baseline, const std::string& name, BaselineEntry entry) {
  const auto found = baseline.find(name);
  if (found != baseline.end() && PeakJson(found->second.peak) == PeakJson(entry.peak)) {
    return false;
  }
  baseline.insert_or_assign(name, std::move(entry));
  return true;
}

std::vector<std::string> ScenariosOfJob(const Baseline& baseline, const ObservedPeak& run) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : baseline) {
    if (entry.peak.measured && entry.peak.steps == run.steps && CompareJobs({entry.peak.job, run.job}).empty()) {
      names.push_back(name);
    }
  }
  return names;
}

}  // namespace tidemark
