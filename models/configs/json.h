// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/configs/value.h"

namespace tidemark {

/// JSON with comments, which YAML has no words for, and letters of other planes as JSON escapes them. Numbers and truth
/// are text, as ParseConfig has them; a place is that of the whole file. Nothing where it is no such JSON, has a key
/// twice or is nested deeper than 64.
std::optional<ConfigValue> ParseJson(std::string_view text, const std::string& path);

}  // namespace tidemark
