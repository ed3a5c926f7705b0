// SPDX-License-Identifier: Apache-2.0
#include "reports/render/report_json.h"

#include <utility>

#include "reports/render/instants.h"
#include "reports/render/lints.h"
#include "reports/render/role_json.h"
#include "reports/render/time_json.h"
#include "reports/summarise/yaml_json.h"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

Json SideJson(const ExplainedSide& side) {
  return {{"title", side.report.title},
          {"job", JsonOfYaml(side.report.job_yaml)},
          {"fits", side.report.Fits()},
          {"device_memory_bytes", side.report.device_memory.count()},
          {"usable_memory_bytes", side.report.usable_memory.count()},
          {"peak", RoleJson(side.report.Worst())},
          {"step_ns", side.report.time.step.count()},
          {"last_role", LastRoleJson(side.report.time)},
          {"microbatches", side.microbatches},
          {"instants", InstantsJson(side.report.instants)},
          {"lints", LintsJson(side.report.lints)}};
}

Json TensorJson(const ExplainedTensor& tensor) {
  return {{"name", tensor.name},
          {"category", Name(tensor.category)},
          {"dtype", tensor.dtype},
          {"sharding", tensor.sharding},
          {"bytes_before", tensor.before.count()},
          {"bytes_after", tensor.after.count()},
          {"most_bytes_before", tensor.most_before.count()},
          {"most_bytes_after", tensor.most_after.count()},
          {"born", tensor.born},
          {"dies", tensor.dies},
          {"in_peak", tensor.in_peak}};
}

}  // namespace

Json MakeJson(const Explanation& explanation) {
  Json json = {{"schema", "tidemark.explanation/1"},
               {"summary", ExplainInWords(explanation)},
               {"step", explanation.after.report.steps.front().kind},
               {"peak_delta_bytes", explanation.peak_delta().count()},
               {"step_delta_ns", explanation.step_delta().count()}};
  json["changes"] = Json::array();
  for (const JobDifference& change : explanation.changes) {
    json["changes"].push_back({{"key", change.key}, {"before", change.values[0]}, {"after", change.values[1]}});
  }
  json["tensors"] = Json::array();
  for (const ExplainedTensor& tensor : explanation.tensors) {
    json["tensors"].push_back(TensorJson(tensor));
  }
  json["time"] = Json::array();
  for (const ExplainedTime& time : explanation.times) {
    json["time"].push_back({{"cause", time.cause},
                            {"before_ns", time.before.count()},
                            {"after_ns", time.after.count()},
                            {"delta_ns", time.delta().count()}});
  }
  json["suggestion"] = !explanation.suggestion ? Json(nullptr)
                                               : Json({{"change", explanation.suggestion->change},
                                                       {"allocated_bytes", explanation.suggestion->allocated.count()},
                                                       {"step_ns", explanation.suggestion->step.count()}});
  json["before"] = SideJson(explanation.before);
  json["after"] = SideJson(explanation.after);
  json["provenance"] = {{"version", explanation.after.report.provenance.version}};
  return json;
}

}  // namespace tidemark
