// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "reports/summarise/check_report.h"

namespace tidemark {

/// `tidemark.check/1`. Fields may be added; they are renamed or removed only with a new schema number.
nlohmann::ordered_json CheckJson(const CheckReport& report);

/// What github-action-benchmark takes as `customSmallerIsBetter`: a list of `name`, `unit`, `value`, `extra`, one for
/// every peak that is known.
std::string CheckBenchmark(const CheckReport& report);

}  // namespace tidemark
