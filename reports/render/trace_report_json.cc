// SPDX-License-Identifier: Apache-2.0
#include "reports/render/report_json.h"

#include <algorithm>
#include <utility>

#include "reports/render/lints.h"
#include "reports/render/role_json.h"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

Json TraceJson(const TraceSummary& trace) {
  Json peak = RoleJson(trace.role);
  if (trace.role.device.high == Bytes(0)) {
    peak["device_bytes"] = nullptr;
  }
  Json roles = Json::array();
  for (const RolePeak& role : trace.roles) {
    roles.push_back({{"role", role.role},
                     {"ranks", role.ranks},
                     {"allocated_bytes", role.allocated.count()},
                     {"reserved_bytes", role.reserved ? Json(role.reserved->count()) : Json(nullptr)},
                     {"where", role.where}});
  }
  const auto bytes = [](const std::optional<Bytes>& told) { return told ? Json(told->count()) : Json(nullptr); };
  Json refused = Json::array();
  for (const RefusedRequest& one : trace.refused) {
    refused.push_back({{"role", one.role},
                       {"after_ns", one.at.count()},
                       {"phase", one.where.phase},
                       {"microbatch", one.where.microbatch},
                       {"step", one.where.step},
                       {"allocated_bytes", bytes(one.allocated)},
                       {"reserved_bytes", bytes(one.reserved)},
                       {"ends", one.ends}});
  }
  const auto fits = trace.Fits();
  return {{"label", trace.label},
          {"path", trace.path},
          {"format", trace.format},
          {"origin", trace.origin},
          {"title", trace.title},
          {"cut_short", trace.note.empty() ? Json(nullptr) : Json(trace.note)},
          {"device_memory_bytes", trace.device_memory > Bytes(0) ? Json(trace.device_memory.count()) : Json(nullptr)},
          {"usable_memory_bytes", trace.device_memory > Bytes(0) ? Json(trace.usable_memory.count()) : Json(nullptr)},
          {"fits", fits ? Json(*fits) : Json(nullptr)},
          {"out_of_memory", std::move(refused)},
          {"lints", LintsJson(trace.lints)},
          {"assumed", trace.trace().assumed},
          {"not_modelled", trace.trace().not_modelled},
          {"peak", std::move(peak)},
          {"roles", std::move(roles)},
          {"steps", std::max<std::size_t>(trace.trace().steps.size(), 1)},
          {"span_ns", trace.trace().step.count()},
          {"events", trace.trace().memory.size()}};
}

Json DifferenceJson(const TraceReport& report, const PeakDifference& difference) {
  Json tensors = Json::array();
  for (const TensorDifference& tensor : difference.tensors) {
    tensors.push_back({{"name", tensor.name},
                       {"name_after", tensor.name_after.empty() ? tensor.name : tensor.name_after},
                       {"category", Name(tensor.category)},
                       {"bytes_before", tensor.before.count()},
                       {"bytes_after", tensor.after.count()},
                       {"difference_bytes", tensor.difference().count()}});
  }
  return {{"before", report.traces.front().label},
          {"after", report.traces.at(difference.other).label},
          {"peak_delta_bytes", difference.difference().count()},
          {"tensors", std::move(tensors)}};
}

}  // namespace

Json MakeJson(const TraceReport& report) {
  Json json = {{"schema", "tidemark.report/1"}};
  json["traces"] = Json::array();
  for (const TraceSummary& trace : report.traces) {
    json["traces"].push_back(TraceJson(trace));
  }
  json["differences"] = Json::array();
  for (const PeakDifference& difference : report.differences) {
    json["differences"].push_back(DifferenceJson(report, difference));
  }
  json["jobs"] = Json::array();
  for (const JobDifference& job : report.jobs) {
    json["jobs"].push_back({{"key", job.key}, {"values", job.values}});
  }
  return json;
}

}  // namespace tidemark
