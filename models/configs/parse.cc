// SPDX-License-Identifier: Apache-2.0
#include "models/configs/parse.h"

#include <fmt/format.h>

#include "base/text.h"
#include "models/configs/arguments.h"
#include "models/configs/toml.h"

namespace tidemark {

Result<ConfigValue> ParseAnyConfig(std::string_view text, const std::string& path) {
  Result<ConfigValue> root = LowerCase(path).ends_with(".toml") ? ParseToml(text, path) : ParseConfig(text, path);
  if ((!root || !root->is_map()) && HasOptions(text)) {
    root = ParseArguments(text, path);
  }
  if (root && !root->is_map()) {
    return ErrorAt(*root, {},
                   fmt::format("expected a config, found {}", root->is_null() ? "an empty file" : Describe(*root)),
                   "a job is YAML with the keys network, machine, strategy, ...");
  }
  return root;
}

}  // namespace tidemark
