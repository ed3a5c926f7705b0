// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "reports/summarise/trace_report.h"

namespace tidemark {

/// "tidemark.report/1". Fields may be added; they are renamed or removed only with a new schema number.
nlohmann::ordered_json TraceReportJson(const TraceReport& report);

}  // namespace tidemark
