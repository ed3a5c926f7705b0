// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "reports/render/place_json.h"
#include "reports/render/report_json.h"
#include "reports/render/role_json.h"

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

Json PercentJson(std::optional<double> percent) { return percent ? Json(*percent) : Json(nullptr); }

/// `value` and where it is.
Json With(Json value, const PhasePlace& place) {
  value.update(PlaceJson(place));
  return value;
}

Json SideJson(const ComparedSide& side, const SideTotals& totals) {
  Json categories = Json::object();
  for (std::size_t i = 0; i < kCategories; ++i) {
    const auto category = static_cast<Category>(i);
    if (totals.by_category[category] > Bytes(0)) {
      categories[std::string(Name(category))] = totals.by_category[category].count();
    }
  }
  return {{"label", side.label},
          {"path", side.path},
          {"format", side.format},
          {"origin", side.origin},
          {"clock", side.clock.empty() ? Json(nullptr) : Json(side.clock)},
          {"title", side.title},
          {"cut_short", side.note.empty() ? Json(nullptr) : Json(side.note)},
          {"peak_bytes", totals.peak.count()},
          {"at", PlaceJson(totals.peak_at)},
          {"allocator_bytes", OptionalBytes(totals.allocator)},
          {"reserved_bytes", OptionalBytes(totals.reserved)},
          {"step_ns", totals.step.count()},
          {"steps_compared", side.steps.empty() ? Json(nullptr) : Json(side.steps)},
          {"steps_of_trace", side.all_steps},
          {"by_category", std::move(categories)}};
}

std::optional<double> ReservedPercent(const TraceComparison& comparison) {
  const auto &ours = comparison.predicted.reserved, &theirs = comparison.measured.reserved;
  return ours && theirs ? ErrorPercent(ours->count(), theirs->count()) : std::nullopt;
}

Json StepTimesJson(const TraceComparison& comparison) {
  Json rows = Json::array();
  for (const StepTimes& row : comparison.step_times) {
    rows.push_back({{"kind", row.kind.empty() ? Json(nullptr) : Json(row.kind)},
                    {"count", row.count},
                    {"predicted_ns", row.predicted.count()},
                    {"measured_ns", row.measured.count()},
                    {"error_percent", PercentJson(ErrorPercent(row.predicted.count(), row.measured.count()))}});
  }
  return rows;
}

Json PhasesJson(const TraceComparison& comparison) {
  Json phases = Json::array();
  for (const PhaseComparison& phase : comparison.phases) {
    phases.push_back(
        {{"phase", phase.phase},
         {"predicted_peak_bytes", phase.predicted_peak.count()},
         {"measured_peak_bytes", phase.measured_peak.count()},
         {"largest_error_bytes", phase.largest_error.count()},
         {"largest_error_at", phase.largest_error == Bytes(0) ? Json(nullptr) : PlaceJson(phase.largest_at)},
         {"predicted_ns", phase.predicted_time.count()},
         {"measured_ns", phase.measured_time.count()}});
  }
  return phases;
}

Json UnmatchedJson(const TraceComparison& comparison) {
  Json unmatched = Json::array();
  for (const UnmatchedTensor& tensor : comparison.unmatched) {
    unmatched.push_back(With({{"only", tensor.predicted ? "predicted" : "measured"},
                              {"name", tensor.name},
                              {"category", Name(tensor.category)},
                              {"count", tensor.count},
                              {"bytes", tensor.bytes.count()}},
                             tensor.place));
  }
  return unmatched;
}

Json CausesJson(const TraceComparison& comparison) {
  Json causes = Json::array();
  for (const WordedCause& cause : CausesInWords(comparison)) {
    causes.push_back({{"kind", cause.kind},
                      {"of", cause.of},
                      {"bytes", OptionalBytes(cause.bytes)},
                      {"ns", cause.nanos ? Json(cause.nanos->count()) : Json(nullptr)},
                      {"tensors", cause.tensors},
                      {"sentence", cause.sentence}});
  }
  return causes;
}

Json OperatorsJson(const TraceComparison& comparison) {
  Json operators = Json::array();
  for (const OperatorComparison& row : comparison.operators) {
    operators.push_back({{"name", row.name},
                         {"stream", row.stream_kind},
                         {"predicted_count", row.predicted_count},
                         {"measured_count", row.measured_count},
                         {"predicted_ns", row.predicted.count()},
                         {"measured_ns", row.measured.count()}});
  }
  return operators;
}

Json FirstJson(const std::optional<FirstDifference>& first) {
  if (!first) {
    return nullptr;
  }
  return {{"predicted",
           With({{"event", first->predicted}, {"issue_ns", first->predicted_issue.count()}}, first->predicted_place)},
          {"measured",
           With({{"event", first->measured}, {"issue_ns", first->measured_issue.count()}}, first->measured_place)}};
}

Json RolesJson(const Comparison& comparison) {
  Json roles = Json::array();
  for (const TraceComparison& role : comparison.roles) {
    roles.push_back({{"role", role.role},
                     {"predicted_trace", role.predicted_trace},
                     {"measured_trace", role.measured_trace},
                     {"predicted_peak_bytes", role.predicted.peak.count()},
                     {"measured_peak_bytes", role.measured.peak.count()},
                     {"peak_error_bytes", role.peak_error().count()},
                     {"reserved_error_percent", PercentJson(ReservedPercent(role))},
                     {"step_time_error_percent",
                      PercentJson(ErrorPercent(role.predicted.step.count(), role.measured.step.count()))},
                     {"phases", PhasesJson(role)}});
  }
  return roles;
}

}  // namespace

Json MakeJson(const ComparisonReport& report) {
  const Comparison& comparison = report.comparison;
  const TraceComparison& worst = comparison.Worst();
  Json json = {
      {"schema", "tidemark.comparison/1"},
      {"role", worst.role},
      {"peak_of", worst.of_tensors ? "tensors" : "allocator"},
      {"paired_by_bytes", worst.paired_by_bytes},
      {"peak_error_bytes", worst.peak_error().count()},
      {"peak_error_percent", PercentJson(ErrorPercent(worst.predicted.peak.count(), worst.measured.peak.count()))},
      {"reserved_error_percent", PercentJson(ReservedPercent(worst))},
      {"step_time_error_percent", PercentJson(ErrorPercent(worst.predicted.step.count(), worst.measured.step.count()))},
      {"steps", worst.steps},
      {"step_times", StepTimesJson(worst)},
      {"phases", PhasesJson(worst)},
      {"phase_times", worst.times_of_work ? "work" : "host"},
      {"unmatched", UnmatchedJson(worst)},
      {"causes", CausesJson(worst)},
      {"independent", comparison.independent},
      {"first_difference", FirstJson(worst.first)},
      {"operators", OperatorsJson(worst)},
      {"predicted", SideJson(report.predicted, worst.predicted)},
      {"measured", SideJson(report.measured, worst.measured)},
      {"roles", RolesJson(comparison)},
      {"only_predicted_roles", comparison.only_predicted},
      {"only_measured_roles", comparison.only_measured}};
  json["jobs"] = Json::array();
  for (const JobDifference& job : report.jobs) {
    json["jobs"].push_back({{"key", job.key}, {"predicted", job.values.at(0)}, {"measured", job.values.at(1)}});
  }
  return json;
}

}  // namespace tidemark
