// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// Parses a config of any syntax there is. The ending of `path` says TOML, YAML or JSON; of any other file its first
/// word does: a key ("network:") or a brace begins YAML or JSON, anything else a command line, where the text has
/// options. Refuses what holds no fields.
Result<ConfigValue> ParseAnyConfig(std::string_view text, const std::string& path);

}  // namespace tidemark
