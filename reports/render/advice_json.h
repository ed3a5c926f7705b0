// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "reports/summarise/advice.h"

namespace tidemark {

nlohmann::ordered_json CostJson(const AdvisedCost& cost);
/// "tidemark.advice/1". Fields may be added; they are renamed or removed only with a new schema number.
nlohmann::ordered_json AdviceJson(const Advice& advice);

}  // namespace tidemark
