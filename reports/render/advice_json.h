// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "reports/summarise/advice.h"

namespace tidemark {

nlohmann::ordered_json CostJson(const AdvisedCost& cost);

}  // namespace tidemark
