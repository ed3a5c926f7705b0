// SPDX-License-Identifier: Apache-2.0
//
// "tidemark.prediction/1". Fields may be added; they are renamed or removed only with a new schema number.
#include <nlohmann/json.hpp>

#include "reports/render/render.h"
#include "reports/render/yaml_json.h"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kLive = 32;

Json OptionalBytes(const std::optional<Bytes>& bytes) { return bytes ? Json(bytes->count()) : Json(nullptr); }

Json LiveJson(const std::vector<LiveBuffers>& all) {
  Json array = Json::array();
  for (const LiveBuffers& live : all) {
    if (array.size() == kLive) {
      break;
    }
    array.push_back({{"name", live.name},
                     {"category", Name(live.category)},
                     {"bytes", live.bytes.count()},
                     {"count", live.count},
                     {"since", live.since.count()},
                     {"until", live.until ? Json(live.until->count()) : Json(nullptr)},
                     {"since_phase", live.since_phase},
                     {"until_phase", live.until_phase}});
  }
  return array;
}

Json RoleJson(const RoleReport& role) {
  Json categories = Json::object();
  for (std::size_t i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    categories[std::string(Name(category))] = role.peak.by_category[category].count();
  }
  Json phases = Json::array();
  for (const PhasePeak& phase : role.phases) {
    phases.push_back({{"phase", phase.phase}, {"allocated_bytes", phase.allocated.count()}});
  }
  return {{"role", role.role},
          {"ranks", role.ranks},
          {"allocated_bytes", role.peak.allocated.count()},
          {"allocator_bytes", OptionalBytes(role.allocator_bytes)},
          {"reserved_bytes", OptionalBytes(role.reserved)},
          {"minimum_bytes", OptionalBytes(role.minimum)},
          {"device_bytes",
           {{"low", role.device.low.count()},
            {"expected", role.device.expected.count()},
            {"high", role.device.high.count()}}},
          {"at",
           {{"phase", role.peak.phase},
            {"microbatch", role.peak.microbatch < 0 ? Json(nullptr) : Json(role.peak.microbatch)},
            {"ns", role.peak.at ? Json(role.peak.at->count()) : Json(nullptr)}}},
          {"by_category", std::move(categories)},
          {"live", LiveJson(role.peak.live)},
          {"phases", std::move(phases)}};
}

Json CapacityJson(const CapacityReport& capacity) {
  const bool failed = capacity.outcome == "out_of_memory";
  return {{"capacity_bytes", capacity.capacity.count()},
          {"outcome", capacity.outcome},
          {"cache_flushes", capacity.cache_flushes},
          {"request_bytes", failed ? Json(capacity.request.count()) : Json(nullptr)},
          {"phase", failed ? Json(capacity.phase) : Json(nullptr)}};
}

Json TimeJson(const TimeReport& time) {
  return {{"step_ns", time.step.count()},
          {"compute_ns", time.compute.count()},
          {"recompute_ns", time.recompute.count()},
          {"exposed_communication_ns", time.exposed_communication.count()},
          {"bubble_ns", time.bubble.count()},
          {"optimizer_ns", time.optimizer.count()},
          {"host_ns", time.host.count()}};
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

Json LintsJson(const std::vector<LintReport>& lints) {
  Json array = Json::array();
  for (const LintReport& lint : lints) {
    array.push_back({{"id", lint.id}, {"severity", lint.severity}, {"message", lint.message}, {"hint", lint.hint}});
  }
  return array;
}

Json EngineJson(const EngineReport& engine) {
  return {{"allocated_bytes", engine.allocated.count()},
          {"step_ns", engine.step.count()},
          {"evaluation_ns", engine.evaluation.count()}};
}

Json ReportJson(const PredictionReport& report) {
  Json json = {{"schema", "tidemark.prediction/1"},
               {"title", report.title},
               {"job", JsonOfYaml(report.job_yaml)},
               {"step", report.step},
               {"fits", report.Fits()},
               {"device_memory_bytes", report.device_memory.count()},
               {"peak", RoleJson(report.Worst())}};
  json["roles"] = Json::array();
  for (const RoleReport& role : report.roles) {
    json["roles"].push_back(RoleJson(role));
  }
  if (report.capacity) {
    json["capacity"] = CapacityJson(*report.capacity);
  }
  json["time"] = TimeJson(report.time);
  json["throughput"] = {{"tokens_per_s_per_gpu", report.throughput.tokens_per_s_per_gpu},
                        {"model_tflops_per_gpu", report.throughput.model_tflops_per_gpu},
                        {"mfu", report.throughput.mfu},
                        {"hfu", report.throughput.hfu}};
  json["communication"] = CommunicationJson(report.communication);
  json["lints"] = LintsJson(report.lints);
  if (report.engines) {
    json["engines"] = {{"closed_form", EngineJson(report.engines->closed_form)},
                       {"simulate", EngineJson(report.engines->simulate)}};
  }
  const Provenance& provenance = report.provenance;
  json["provenance"] = {{"version", provenance.version},
                        {"modelled", provenance.modelled},
                        {"calibrated", provenance.calibrated},
                        {"assumed", provenance.assumed},
                        {"not_modelled", provenance.not_modelled},
                        {"machine", report.machine},
                        {"machine_assumed", report.machine_assumed}};
  return json;
}

class JsonRenderer : public Renderer {
 public:
  std::string_view name() const override { return "json"; }
  std::string_view summary() const override { return "tidemark.prediction/1, for scripts and CI"; }

  /// Names that are not UTF-8 come out with replacement characters rather than as an error.
  std::string Render(const PredictionReport& report, const RenderOptions&) const override {
    return ReportJson(report).dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  }
};

}  // namespace

std::unique_ptr<Renderer> RenderJson() { return std::make_unique<JsonRenderer>(); }

}  // namespace tidemark
