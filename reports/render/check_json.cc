// SPDX-License-Identifier: Apache-2.0
#include "reports/render/check_json.h"

#include <string>

#include "reports/render/report_json.h"
#include "reports/render/role_json.h"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

Json ChangesJson(const std::vector<PeakChange>& changes) {
  Json list = Json::array();
  for (const PeakChange& change : changes) {
    list.push_back({{"category", Name(change.category)},
                    {"tensor", change.tensor},
                    {"phase", change.phase},
                    {"until_phase", change.until},
                    {"bytes", change.difference().count()},
                    {"before_bytes", change.before.count()},
                    {"after_bytes", change.after.count()}});
  }
  return list;
}

Json ScenarioJson(const CheckReport& report, const CheckedScenario& scenario) {
  Json job_changed = Json::array();
  for (const JobDifference& difference : scenario.job_changed) {
    job_changed.push_back(
        {{"key", difference.key}, {"before", difference.values.at(0)}, {"after", difference.values.at(1)}});
  }
  const std::string hint = CheckHint(report, scenario);
  return {{"name", scenario.name},
          {"verdict", Name(scenario.verdict())},
          {"against_baseline", Name(scenario.against)},
          {"mode", scenario.measured ? "run" : "predict"},
          {"baseline_bytes", OptionalBytes(scenario.baseline)},
          {"peak_bytes", OptionalBytes(scenario.peak)},
          {"delta_bytes", OptionalBytes(scenario.delta())},
          {"tolerance_percent", scenario.tolerance_percent},
          {"at", scenario.at},
          {"budget_bytes", OptionalBytes(scenario.budget)},
          {"device_bytes", OptionalBytes(scenario.device)},
          {"grown", ChangesJson(scenario.grown)},
          {"shrunk", ChangesJson(scenario.shrunk)},
          {"job_changed", std::move(job_changed)},
          {"doubts", scenario.doubts},
          {"message", CheckSentence(scenario)},
          {"hint", hint.empty() ? Json(nullptr) : Json(hint)},
          {"file", scenario.file},
          {"line", scenario.line > 0 ? Json(scenario.line) : Json(nullptr)}};
}

}  // namespace

Json MakeJson(const CheckReport& report) {
  Json json = {{"schema", "tidemark.check/1"},
               {"passes", report.Passes()},
               {"failed", report.Failed()},
               {"scenario_file", report.scenarios_path},
               {"baseline_file", report.baseline_path},
               {"has_baseline", report.has_baseline}};
  json["scenarios"] = Json::array();
  for (const CheckedScenario& scenario : report.scenarios) {
    json["scenarios"].push_back(ScenarioJson(report, scenario));
  }
  json["provenance"] = {{"version", report.version}};
  return json;
}

std::string CheckBenchmark(const CheckReport& report) {
  Json list = Json::array();
  for (const CheckedScenario& scenario : report.scenarios) {
    if (scenario.peak) {
      list.push_back({{"name", scenario.name + ": peak memory"},
                      {"unit", "bytes"},
                      {"value", scenario.peak->count()},
                      {"extra", CheckSentence(scenario)}});
    }
  }
  return list.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tidemark
