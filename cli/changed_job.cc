// SPDX-License-Identifier: Apache-2.0
#include "cli/changed_job.h"

#include <algorithm>
#include <utility>

#include "cli/prediction_report.h"
#include "models/machine/device_bytes.h"
#include "sim/predict/predict.h"

namespace tidemark {

namespace {

Result<ChangedJob> PredictStep(JobOptions options, const std::vector<std::string>& change, StepKind step, Engine engine,
                               std::int64_t most_events) {
  options.set.insert(options.set.end(), change.begin(), change.end());
  ChangedJob changed;
  TIDEMARK_ASSIGN(changed.job, LoadJob(options));
  PredictOptions predict;
  predict.steps.front().kind = step;
  predict.engine = engine;
  predict.traces = false;
  predict.most_events = most_events;
  TIDEMARK_ASSIGN(Prediction prediction, Predict(changed.job, predict));
  changed.report = MakeReport(changed.job, predict, std::move(prediction));
  return changed;
}

}  // namespace

Result<ChangedJob> PredictChanged(const JobOptions& options, const std::vector<std::string>& change, StepKind step) {
  return PredictStep(options, change, step, Engine::closed_form, kMostEvents);
}

Result<ChangedJob> SimulateChanged(const JobOptions& options, const std::vector<std::string>& change,
                                   std::int64_t most_events) {
  Result<ChangedJob> simulated = PredictStep(options, change, StepKind::steady, Engine::simulate, most_events);
  return simulated ? std::move(simulated) : PredictChanged(options, change);
}

AdvisedCost CostOf(const PredictionReport& report) {
  const RoleReport& worst = report.Worst();
  return {worst.peak.allocated, worst.device,  report.usable_memory,
          report.time.step,     report.Fits(), worst.reserved.has_value()};
}

std::vector<std::string> NewWarnings(const std::vector<Lint>& lints, const std::vector<Lint>& before) {
  std::vector<std::string> ids;
  for (const Lint& lint : lints) {
    const bool is_old =
        std::any_of(before.begin(), before.end(), [&](const Lint& other) { return other.id == lint.id; });
    if (lint.severity != "note" && !is_old) {
      ids.push_back(lint.id);
    }
  }
  return ids;
}

}  // namespace tidemark
