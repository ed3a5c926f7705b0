// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "reports/summarise/advice.h"
#include "reports/summarise/audit.h"
#include "reports/summarise/check_report.h"
#include "reports/summarise/comparison.h"
#include "reports/summarise/explanation.h"
#include "reports/summarise/prediction.h"
#include "reports/summarise/replay.h"
#include "reports/summarise/solution.h"
#include "reports/summarise/sweep.h"
#include "reports/summarise/trace_report.h"

namespace tidemark {

// Reports as scripts read them. Fields may be added; they are renamed or removed only with a new schema number.

nlohmann::ordered_json MakeJson(const PredictionReport& report);  ///< tidemark.prediction/1
nlohmann::ordered_json MakeJson(const TraceReport& report);       ///< tidemark.report/1
nlohmann::ordered_json MakeJson(const AuditReport& report);       ///< tidemark.audit/1
nlohmann::ordered_json MakeJson(const Explanation& explanation);  ///< tidemark.explanation/1
nlohmann::ordered_json MakeJson(const ComparisonReport& report);  ///< tidemark.comparison/1
nlohmann::ordered_json MakeJson(const SweepReport& report);       ///< tidemark.sweep/1
nlohmann::ordered_json MakeJson(const Advice& advice);            ///< tidemark.advice/1
nlohmann::ordered_json MakeJson(const Solution& solution);        ///< tidemark.advice/1
nlohmann::ordered_json MakeJson(const ReplayReport& report);      ///< tidemark.replay/1
nlohmann::ordered_json MakeJson(const CheckReport& report);       ///< tidemark.check/1

}  // namespace tidemark
