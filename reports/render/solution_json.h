// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "reports/summarise/solution.h"

namespace tidemark {

/// `tidemark.advice/1`.
nlohmann::ordered_json SolutionJson(const Solution& solution);

}  // namespace tidemark
