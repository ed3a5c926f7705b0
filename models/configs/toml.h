// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// Parses TOML into what ParseConfig makes of YAML: tables are maps, every other value is text, with the line of its
/// own. `path` is for error messages.
Result<ConfigValue> ParseToml(std::string_view text, const std::string& path);

}  // namespace tidemark
