// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "reports/summarise/prediction.h"

namespace tidemark {

/// The step and its parts, the same in every schema that has them.
nlohmann::ordered_json TimeJson(const TimeReport& time);
nlohmann::ordered_json LastRoleJson(const TimeReport& time);  ///< null where it is not told

}  // namespace tidemark
