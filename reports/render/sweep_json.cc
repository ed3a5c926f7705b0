// SPDX-License-Identifier: Apache-2.0
#include "reports/render/report_json.h"

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "base/category.h"
#include "reports/render/role_json.h"
#include "reports/render/time_json.h"
#include "reports/summarise/yaml_json.h"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

/// Values as JSON. A sweep has few of them, and many rows.
class ValueTable {
 public:
  const Json& Of(const std::string& value) {
    const auto [found, is_new] = values_.try_emplace(value);
    if (is_new) {
      found->second = JsonOfYaml(value);
    }
    return found->second;
  }

 private:
  std::map<std::string, Json> values_;
};

Json RowJson(const std::vector<std::string>& keys, const SweepRow& row, ValueTable& values) {
  Json json = Json::object();
  for (std::size_t i = 0; i < keys.size(); ++i) {
    json[keys[i]] = values.Of(row.values.at(i));
  }
  json["allocated_bytes"] = row.allocated.count();
  json["reserved_bytes"] = OptionalBytes(row.reserved);
  json["device_high_bytes"] = row.device.high.count();
  json["usable_memory_bytes"] = row.usable.count();
  json["host_bytes"] = row.host.count();
  json.update(TimeJson(row.time));
  json["tokens_per_s_per_gpu"] = row.tokens_per_s_per_gpu;
  json["mfu"] = row.mfu ? Json(*row.mfu) : Json(nullptr);
  json["fits"] = row.fits;
  json["pareto"] = row.pareto;
  json["phase"] = row.phase;
  json["by_category"] = CategoriesJson(row.by_category);
  return json;
}

}  // namespace

Json MakeJson(const SweepReport& report) {
  Json json = {{"schema", "tidemark.sweep/1"},
               {"title", report.title},
               {"job", JsonOfYaml(report.job_yaml)},
               {"machine", report.machine.empty() ? Json(nullptr) : Json(report.machine)},
               {"device_memory_bytes", OptionalBytes(report.device_memory)},
               {"keys", report.keys},
               {"size", report.size},
               {"evaluated", report.evaluated},
               {"pruned", report.pruned},
               {"refused", report.refused},
               {"feasible", report.feasible},
               {"not_reached", report.size - report.evaluated - report.pruned - report.refused},
               {"same_batch", report.same_batch},
               {"complete", report.complete},
               {"seconds", report.seconds},
               {"front", {{"x", report.x}, {"y", report.y}}}};
  json["rows"] = Json::array();
  ValueTable values;
  for (const SweepRow& row : report.rows) {
    json["rows"].push_back(RowJson(report.keys, row, values));
  }
  json["rows_left_out"] = report.rows_left_out;
  json["refusals"] = Json::array();
  for (const SweepRefusal& refusal : report.refusals) {
    json["refusals"].push_back({{"reason", refusal.reason}, {"count", refusal.count}});
  }
  json["provenance"] = {{"version", report.version}};
  return json;
}

}  // namespace tidemark
