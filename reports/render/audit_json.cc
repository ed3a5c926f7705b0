// SPDX-License-Identifier: Apache-2.0
#include "reports/render/report_json.h"

#include <optional>

#include "reports/render/lints.h"
#include "reports/summarise/yaml_json.h"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

Json NumberOrNull(const std::optional<std::int64_t>& number) { return number ? Json(*number) : Json(nullptr); }

Json HazardJson(const HazardReport& hazard) {
  return {{"kind", hazard.kind},
          {"buffer", hazard.buffer},
          {"value", hazard.value},
          {"overwritten_by", hazard.overwritten_by},
          {"read_by", hazard.read_by},
          {"microbatch", hazard.side.empty() ? NumberOrNull(hazard.microbatch) : Json(nullptr)},
          {"side", hazard.side.empty() ? Json(nullptr) : Json(hazard.side)},
          {"chunk", hazard.side.empty() ? Json(nullptr) : NumberOrNull(hazard.microbatch)},
          {"layer", NumberOrNull(hazard.layer)},
          {"role", hazard.role},
          {"stage", hazard.stage},
          {"message", hazard.message}};
}

Json WindowJson(const WindowReport& window, bool chunks) {
  return {{"microbatches", chunks ? Json(nullptr) : Json(window.microbatches)},
          {"chunks", chunks ? Json(window.microbatches) : Json(nullptr)},
          {"gradient_factor", window.factor ? Json(*window.factor) : Json(nullptr)},
          {"gradient_factor_exact", window.exact},
          {"uniform", window.uniform},
          {"lost", window.lost}};
}

Json IdleJson(const IdleReport& idle) {
  return {{"buffers", idle.buffers},
          {"bytes", idle.bytes.count()},
          {"last_used_by", idle.last_used_by},
          {"freed_in", idle.freed_in},
          {"why", idle.why.empty() ? Json(nullptr) : Json(idle.why)},
          {"role", idle.role},
          {"stage", idle.stage}};
}

}  // namespace

Json MakeJson(const AuditReport& report) {
  Json json = {{"schema", "tidemark.audit/1"},
               {"title", report.title},
               {"job", JsonOfYaml(report.job_yaml)},
               {"step", report.step},
               {"clean", report.clean}};
  json["hazards"] = Json::array();
  for (const HazardReport& hazard : report.hazards) {
    json["hazards"].push_back(HazardJson(hazard));
  }
  json["hazards_left_out"] = report.hazards_left_out;
  json["lints"] = LintsJson(report.lints);
  json["windows"] = Json::array();
  for (const WindowReport& window : report.windows) {
    json["windows"].push_back(WindowJson(window, report.chunks));
  }
  json["pending"] = report.pending;
  json["idle"] = Json::array();
  for (const IdleReport& idle : report.idle) {
    json["idle"].push_back(IdleJson(idle));
  }
  json["provenance"] = {{"version", report.version}};
  return json;
}

}  // namespace tidemark
