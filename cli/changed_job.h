// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/lint.h"
#include "base/quantity.h"
#include "base/result.h"
#include "cli/options.h"
#include "models/job/job.h"
#include "reports/summarise/advice.h"
#include "reports/summarise/prediction.h"
#include "sim/predict/program_length.h"
#include "sim/predict/steps.h"

namespace tidemark {

/// A job of the command line with one more change, and what is predicted of one step of it.
struct ChangedJob {
  Job job;
  PredictionReport report;
};

/// `change` is set on top of the job's own --set: none is the job itself. By the closed form. Fails where the real
/// system would refuse it.
Result<ChangedJob> PredictChanged(const JobOptions& options, const std::vector<std::string>& change,
                                  StepKind step = StepKind::steady);

/// Its steady step by the simulation, as the command line has it that comes with a change; by the closed form where a
/// step has more than `most_events`.
Result<ChangedJob> SimulateChanged(const JobOptions& options, const std::vector<std::string>& change,
                                   std::int64_t most_events = kMostEvents);

/// Its worst role, and its step.
AdvisedCost CostOf(const PredictionReport& report);

/// Ids of warnings and errors that a job has and another had not.
std::vector<std::string> NewWarnings(const std::vector<Lint>& lints, const std::vector<Lint>& before);

}  // namespace tidemark
