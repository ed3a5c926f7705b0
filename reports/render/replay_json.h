// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "reports/summarise/replay.h"

namespace tidemark {

/// "tidemark.replay/1". Fields may be added; they are renamed or removed only with a new schema number.
nlohmann::ordered_json ReplayJson(const ReplayReport& report);

}  // namespace tidemark
