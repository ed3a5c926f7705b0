// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"
#include "reports/summarise/peak.h"

namespace tidemark {

// The parts that a baseline and a tidemark.run/1 have in common.

/// The bytes under `bytes_key`, and what is alive there, under "live": `name`, `category`, `bytes`, `since_phase`,
/// `until_phase`. They sum to the bytes.
Result<Peak> ReadPeak(const nlohmann::json& object, const char* bytes_key);
/// The list under "live", by category and name.
nlohmann::ordered_json LiveOf(const Peak& peak);

/// The texts under "hardware", by name.
Result<std::map<std::string, std::string>> ReadHardware(const nlohmann::json& object);

}  // namespace tidemark
