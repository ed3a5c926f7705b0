// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "reports/summarise/comparison.h"

namespace tidemark {

/// "tidemark.comparison/1". Fields may be added; they are renamed or removed only with a new schema number.
nlohmann::ordered_json ComparisonJson(const ComparisonReport& report);

}  // namespace tidemark
