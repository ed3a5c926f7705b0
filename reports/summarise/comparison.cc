// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/comparison.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "reports/summarise/yaml_json.h"
#include "traces/compare/steps.h"

namespace tidemark {
namespace {

std::string JobOf(const ReadTrace& side) { return side.file.traces.front().job_yaml; }

/// Sizes of the network and its division into stages: where they differ nothing can be matched.
constexpr std::array kSameThing = {"network",   "network.layers", "network.hidden", "network.vocabulary",
                                   "layout.pp", "layout.vpp"};

const JobDifference* Find(const std::vector<JobDifference>& jobs, std::string_view key) {
  const auto found = std::find_if(jobs.begin(), jobs.end(), [&](const auto& job) { return job.key == key; });
  return found == jobs.end() ? nullptr : &*found;
}

Status RefuseAnotherThing(const std::vector<JobDifference>& jobs) {
  for (const char* key : kSameThing) {
    const JobDifference* other = Find(jobs, key);
    if (other == nullptr) {
      continue;
    }
    const JobDifference* name = Find(jobs, "network.name");
    const JobDifference& told = name != nullptr && other->key.starts_with("network") ? *name : *other;
    return BadInput(
        fmt::format("two traces of the same job were expected, but {} is {} in the first and {} in the second",
                    told.key, told.values.at(0), told.values.at(1)),
        "tidemark report lays traces of different jobs side by side");
  }
  return Done{};
}

ComparedSide MakeSide(const ReadTrace& read, const Trace& whole, Trace trace, std::vector<std::size_t> steps) {
  const bool all = steps.size() == whole.steps.size();
  return {trace.origin,      read.path,        read.file.format,
          trace.origin,      trace.clock,      trace.title,
          read.file.note,    std::move(trace), all ? std::vector<std::size_t>() : std::move(steps),
          whole.steps.size()};
}

/// A legend that says which is which: by origin, and by file where the origins are the same.
void NameSides(ComparedSide& predicted, ComparedSide& measured) {
  if (predicted.origin != measured.origin && !predicted.origin.empty() && !measured.origin.empty()) {
    return;
  }
  for (ComparedSide* side : {&predicted, &measured}) {
    const std::string file = std::filesystem::path(side->path).stem().string();
    side->label = fmt::format("{} ({})", side->origin.empty() ? "of unknown origin" : side->origin, file);
  }
  if (predicted.label == measured.label) {
    predicted.label = "first: " + predicted.label;
    measured.label = "second: " + measured.label;
  }
}

/// A job names a preset; any other machine stands in it in full.
std::optional<UncalibratedTimes> FindUncalibrated(const std::string& job, std::string_view origin) {
  constexpr std::string_view kMeasured = "measured on ";
  if (job.empty() || !origin.starts_with(kMeasured)) {
    return std::nullopt;
  }
  const nlohmann::ordered_json keys = JsonOfYaml(job);
  const auto machine = keys.find("machine");
  if (machine == keys.end() || !machine->is_string()) {
    return std::nullopt;
  }
  return UncalibratedTimes{machine->get<std::string>(), std::string(origin.substr(kMeasured.size()))};
}

}  // namespace

Result<ComparisonReport> MakeComparison(ReadTrace predicted, ReadTrace measured) {
  for (ReadTrace* read : {&predicted, &measured}) {
    for (Trace& trace : read->file.traces) {
      trace.missing = trace.missing.empty() ? read->file.note : trace.missing;
    }
  }
  ComparisonReport report;
  report.jobs = CompareJobs({JobOf(predicted), JobOf(measured)});
  TIDEMARK_TRY(RefuseAnotherThing(report.jobs));
  TIDEMARK_ASSIGN(report.comparison, CompareTraces(predicted.file.traces, measured.file.traces));
  const TraceComparison& worst = report.comparison.Worst();
  const Trace& ours = predicted.file.traces.at(worst.predicted_trace);
  const Trace& theirs = measured.file.traces.at(worst.measured_trace);
  TIDEMARK_ASSIGN(SameSteps same, ReduceToSameSteps(ours, theirs));
  report.predicted = MakeSide(predicted, ours, std::move(same.predicted), std::move(same.predicted_steps));
  report.measured = MakeSide(measured, theirs, std::move(same.measured), std::move(same.measured_steps));
  NameSides(report.predicted, report.measured);
  report.uncalibrated = FindUncalibrated(JobOf(predicted), report.measured.origin);
  return report;
}

std::optional<double> ErrorPercent(std::int64_t predicted, std::int64_t measured) {
  if (measured == 0) {
    return std::nullopt;
  }
  return 100.0 * static_cast<double>(predicted - measured) / static_cast<double>(measured);
}

}  // namespace tidemark
