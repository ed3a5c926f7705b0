// SPDX-License-Identifier: Apache-2.0
#include "models/configs/parse.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"
#include "models/configs/arguments.h"
#include "models/configs/toml.h"

namespace tidemark {
namespace {

/// The first word of a text that is no comment.
std::string_view FirstWord(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r\n";
  while (true) {
    text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
    if (!text.starts_with('#') || text.starts_with("#!")) {
      return text.substr(0, text.find_first_of(kBlank));
    }
    text.remove_prefix(std::min(text.find('\n'), text.size()));
  }
}

bool IsCommandLine(std::string_view text, const std::string& path) {
  constexpr std::array kOthers = {".yaml", ".yml", ".json"};
  const std::string_view word = FirstWord(text);
  const bool begins_config = word.ends_with(':') || word.starts_with('{') || word == "---";
  return HasOptions(text) && !begins_config &&
         std::ranges::none_of(kOthers, [&](const char* ending) { return LowerCase(path).ends_with(ending); });
}

Result<ConfigValue> Parse(std::string_view text, const std::string& path) {
  if (LowerCase(path).ends_with(".toml")) {
    return ParseToml(text, path);
  }
  return IsCommandLine(text, path) ? ParseArguments(text, path) : ParseConfig(text, path);
}

}  // namespace

Result<ConfigValue> ParseAnyConfig(std::string_view text, const std::string& path) {
  TIDEMARK_ASSIGN(ConfigValue root, Parse(text, path));
  if (!root.is_map()) {
    return ErrorAt(root, {},
                   fmt::format("expected a config, found {}", root.is_null() ? "an empty file" : Describe(root)),
                   "a job is YAML with the keys network, machine, strategy, ...");
  }
  return root;
}

}  // namespace tidemark
