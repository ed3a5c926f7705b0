// SPDX-License-Identifier: Apache-2.0
#include "reports/render/advice_json.h"

#include <optional>
#include <vector>

#include "reports/render/report_json.h"
#include "reports/summarise/yaml_json.h"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

void AddOptions(const std::vector<AdvisedOption>& options, const char* kind, Json& array) {
  for (const AdvisedOption& option : options) {
    Json json = {{"change", option.change}, {"kind", kind}};
    json.update(CostJson(option.cost));
    const std::optional<double> rate = option.SavedPerMillisecond();
    json["saved_bytes"] = option.saved.count();
    json["lost_ns"] = option.lost.count();
    json["saved_bytes_per_ms"] = rate ? Json(*rate) : Json(nullptr);
    json["alters"] = option.alters ? Json("numbers") : Json(nullptr);
    json["lints"] = option.lints;
    json["command"] = option.command;
    array.push_back(std::move(json));
  }
}

}  // namespace

Json CostJson(const AdvisedCost& cost) {
  return {{"allocated_bytes", cost.allocated.count()},
          {"device_high_bytes", cost.device.high.count()},
          {"usable_memory_bytes", cost.usable.count()},
          {"step_ns", cost.step.count()},
          {"fits", cost.fits},
          {"engine", cost.simulated ? "simulate" : "closed-form"}};
}

Json MakeJson(const Advice& advice) {
  Json json = {{"schema", "tidemark.advice/1"},
               {"title", advice.title},
               {"job", JsonOfYaml(advice.job_yaml)},
               {"machine", advice.machine},
               {"device_memory_bytes", advice.memory.count()},
               {"now", CostJson(advice.now)}};
  json["options"] = Json::array();
  AddOptions(advice.saving, "saves_memory", json["options"]);
  AddOptions(advice.faster, "faster", json["options"]);
  json["saves"] = advice.saves;
  json["saves_and_fits"] = advice.saves_and_fits;
  json["left_out"] = advice.left_out;
  json["tried"] = advice.tried;
  json["refused"] = advice.refused;
  json["wrong"] = advice.wrong;
  json["no_effect"] = advice.no_effect;
  json["worse"] = advice.worse;
  json["provenance"] = {{"version", advice.version}};
  return json;
}

}  // namespace tidemark
