// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// Parses a config of any syntax there is: TOML by the ending of `path`; else YAML or JSON, or a command line where
/// that gives no map and the text has options. Refuses what holds no fields.
Result<ConfigValue> ParseAnyConfig(std::string_view text, const std::string& path);

}  // namespace tidemark
