// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nlohmann/json.hpp>

#include "reports/summarise/explanation.h"

namespace tidemark {

/// "tidemark.explanation/1". Fields may be added; they are renamed or removed only with a new schema number.
nlohmann::ordered_json ExplanationJson(const Explanation& explanation);

}  // namespace tidemark
