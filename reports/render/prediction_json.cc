// SPDX-License-Identifier: Apache-2.0
#include <nlohmann/json.hpp>

#include "reports/render/instants.h"
#include "reports/render/lints.h"
#include "reports/render/place_json.h"
#include "reports/render/report_json.h"
#include "reports/render/role_json.h"
#include "reports/render/time_json.h"
#include "reports/summarise/yaml_json.h"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

/// 0: the network tells no FLOPs, or the machine has no peak for the dtype.
Json IfKnown(double value) { return value > 0 ? Json(value) : Json(nullptr); }

Json CapacityJson(const CapacityReport& capacity) {
  const bool failed = capacity.outcome == "out_of_memory";
  Json json = {{"capacity_bytes", capacity.capacity.count()},
               {"outcome", capacity.outcome},
               {"cache_flushes", capacity.cache_flushes},
               {"request_bytes", failed ? Json(capacity.request.count()) : Json(nullptr)}};
  json.update(failed ? RefusedPlaceJson(capacity.at) : PlaceJson(PhasePlace()));
  return json;
}

/// Equal steps in a row are one entry with their number.
Json StepsJson(const std::vector<StepReport>& steps) {
  Json array = Json::array();
  for (const StepReport& step : steps) {
    array.push_back({{"kind", step.kind},
                     {"count", step.count},
                     {"step_ns", step.time.count()},
                     {"allocated_bytes", step.allocated.count()},
                     {"reserved_bytes", OptionalBytes(step.reserved)}});
  }
  return array;
}

Json CommunicationJson(const std::vector<CommunicationReport>& rows) {
  Json array = Json::array();
  for (const CommunicationReport& row : rows) {
    array.push_back({{"kind", row.kind},
                     {"group", row.group},
                     {"dtype", Name(row.dtype)},
                     {"count", row.count},
                     {"payload_bytes", row.payload.count()},
                     {"wire_bytes", row.wire.count()}});
  }
  return array;
}

Json EngineJson(const EngineReport& engine) {
  return {{"allocated_bytes", engine.allocated.count()},
          {"step_ns", engine.step.count()},
          {"evaluation_ns", engine.evaluation.count()}};
}

}  // namespace

Json MakeJson(const PredictionReport& report) {
  Json json = {{"schema", "tidemark.prediction/1"},
               {"title", report.title},
               {"job", JsonOfYaml(report.job_yaml)},
               {"step", report.Steps() == 1 ? Json(report.steps.front().kind) : Json(nullptr)},
               {"steps", StepsJson(report.steps)},
               {"fits", report.Fits()},
               {"device_memory_bytes", report.device_memory.count()},
               {"usable_memory_bytes", report.usable_memory.count()},
               {"peak", RoleJson(report.Worst())}};
  json["roles"] = Json::array();
  for (const RoleReport& role : report.roles) {
    json["roles"].push_back(RoleJson(role));
  }
  if (report.capacity) {
    json["capacity"] = CapacityJson(*report.capacity);
  }
  json["instants"] = InstantsJson(report.instants);
  json["time"] = TimeJson(report.time);
  json["last_role"] = LastRoleJson(report.time);
  json["throughput"] = {{"tokens_per_s_per_gpu", report.throughput.tokens_per_s_per_gpu},
                        {"model_tflops_per_gpu", IfKnown(report.throughput.model_tflops_per_gpu)},
                        {"mfu", IfKnown(report.throughput.mfu)},
                        {"hfu", IfKnown(report.throughput.hfu)}};
  json["communication"] = CommunicationJson(report.communication);
  json["lints"] = LintsJson(report.lints);
  if (report.engines) {
    json["engines"] = {{"closed_form", EngineJson(report.engines->closed_form)},
                       {"simulate", EngineJson(report.engines->simulate)}};
  }
  const Provenance& provenance = report.provenance;
  json["provenance"] = {{"version", provenance.version},   {"modelled", provenance.modelled},
                        {"observed", provenance.observed}, {"calibrated", provenance.calibrated},
                        {"assumed", provenance.assumed},   {"not_modelled", provenance.not_modelled},
                        {"machine", report.machine},       {"machine_assumed", report.machine_assumed}};
  return json;
}

}  // namespace tidemark
