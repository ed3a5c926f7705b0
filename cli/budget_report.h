// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <vector>

#include "profiler/capture/budget.h"

namespace tidemark {

/// Why a run's numbers are in doubt: what its ranks say, and `time_doubt` of the machine ("": none).
std::vector<std::string> ReasonsOf(std::span<const Budget> budgets, const std::string& time_doubt);

/// The rank that takes most; of equals the lowest.
const Budget& LargestOf(std::span<const Budget> budgets);

/// What the process of the largest rank took, part by part, and whether the measurement is sound.
std::string BudgetText(std::span<const Budget> budgets, std::span<const std::string> reasons);
/// `budget` of tidemark.run/1.
nlohmann::ordered_json BudgetJson(std::span<const Budget> budgets);
/// `validity` of tidemark.run/1.
nlohmann::ordered_json ValidityJson(std::span<const Budget> budgets, std::span<const std::string> reasons);

}  // namespace tidemark
