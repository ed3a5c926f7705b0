// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/job/job.h"
#include "reports/summarise/prediction.h"
#include "sim/predict/predict.h"

namespace tidemark {

/// Brings a prediction and its job into the form that the renderers read. The traces move into the report; each gets
/// the job's title, its resolved YAML and the version of this tool.
PredictionReport MakeReport(const Job& job, const PredictOptions& options, Prediction prediction);

/// All but the name of the role, which only those who have the roles know.
TimeReport MakeTime(const StepTime& time);

/// Adds a remark to the report and to its traces.
void AddLint(PredictionReport& report, const Lint& lint);

}  // namespace tidemark
