// SPDX-License-Identifier: Apache-2.0
#include "models/configs/transformers_deepspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "models/configs/transformers_command.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

std::string FolderOfFile(const ConfigValue& value) {
  return std::filesystem::path(value.where.substr(0, value.where.rfind(':'))).parent_path().string();
}

Result<ConfigValue> ReadFile(const ConfigValue& named, std::string_view alone) {
  const std::filesystem::path path(named.text);
  for (const std::filesystem::path& candidate : {path, FolderOfFile(named) / path}) {
    std::error_code code;
    if (std::filesystem::is_regular_file(candidate, code)) {
      TIDEMARK_ASSIGN(const std::string text, ReadTextFile(candidate.string()));
      return ParseConfig(text, candidate.string());
    }
  }
  return ErrorAt(named, "deepspeed",
                 fmt::format("{} is a file neither from the current folder nor from this file's", Describe(named)),
                 fmt::format("run it where that path begins, or price that file by itself: {}", alone));
}

/// The section that holds a field: the config itself, or one of its sections; null where that is missing.
ConfigValue* SectionOf(ConfigValue& config, std::string_view path) {
  const std::size_t dot = path.find('.');
  if (dot == std::string_view::npos) {
    return &config;
  }
  const auto section = std::ranges::find(config.fields, path.substr(0, dot), &ConfigValue::Entry::key);
  return section == config.fields.end() || !section->value.is_map() ? nullptr : &section->value;
}

}  // namespace

Result<ConfigValue> FindDeepSpeedConfig(const ConfigValue& deepspeed, std::string_view alone) {
  ConfigValue config = deepspeed;
  if (deepspeed.text.starts_with('{')) {
    TIDEMARK_ASSIGN(config, AsSection(deepspeed, "deepspeed"));
  } else if (deepspeed.kind == ConfigValue::Kind::scalar) {
    TIDEMARK_ASSIGN(config, ReadFile(deepspeed, alone));
  }
  if (!config.is_map()) {
    return ErrorAt(config, "deepspeed", fmt::format("expected DeepSpeed's config, found {}", Describe(config)),
                   "its fields, or the path of its file");
  }
  return config;
}

Result<ConfigValue> FillIn(ConfigValue config, const std::vector<DeepSpeedArgument>& arguments) {
  for (const DeepSpeedArgument& argument : arguments) {
    ConfigValue* section = SectionOf(config, argument.theirs);
    if (section == nullptr) {
      continue;
    }
    const std::string_view key = argument.theirs.substr(argument.theirs.rfind('.') + 1);
    const auto field = std::ranges::find(section->fields, key, &ConfigValue::Entry::key);
    if (field == section->fields.end()) {
      if (argument.always) {
        section->fields.push_back({std::string(key), argument.value});
      }
      continue;
    }
    ConfigValue& value = field->value;
    const bool open = value.is_null() || (value.kind == ConfigValue::Kind::scalar && value.text == "auto");
    if (!open && !argument.asked && !IsSameValue(value.text, argument.value.text)) {
      return ErrorAt(value, argument.theirs,
                     fmt::format("is {}, and {} is {} ({}): Hugging Face takes no two that differ", Describe(value),
                                 argument.name, argument.value.text, argument.value.source),
                     "set it to \"auto\", or to the same");
    }
    if (open || argument.asked) {
      value = argument.value;
    }
  }
  return config;
}

}  // namespace tidemark
