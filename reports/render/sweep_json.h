// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "reports/summarise/sweep.h"

namespace tidemark {

/// "tidemark.sweep/1". Fields may be added; they are renamed or removed only with a new schema number.
nlohmann::ordered_json SweepJson(const SweepReport& report);

}  // namespace tidemark
