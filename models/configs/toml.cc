// SPDX-License-Identifier: Apache-2.0
#include "models/configs/toml.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <filesystem>
#include <sstream>
#include <utility>

namespace tidemark {
namespace {

class TomlConverter {
 public:
  explicit TomlConverter(const std::string& path)
      : path_(path), file_(std::filesystem::path(path).filename().string()) {}

  ConfigValue Convert(const toml::node& node) const {
    ConfigValue value;
    const auto line = node.source().begin.line;
    value.where = line == 0 ? path_ : fmt::format("{}:{}", path_, line);
    value.source = line == 0 ? file_ : fmt::format("{}:{}", file_, line);
    if (const toml::table* table = node.as_table()) {
      value.kind = ConfigValue::Kind::map;
      for (const auto& [key, field] : *table) {
        value.fields.push_back({std::string(key.str()), Convert(field)});
      }
    } else if (const toml::array* array = node.as_array()) {
      value.kind = ConfigValue::Kind::list;
      for (const toml::node& item : *array) {
        value.items.push_back(Convert(item));
      }
    } else {
      value.kind = ConfigValue::Kind::scalar;
      value.text = Text(node);
    }
    return value;
  }

 private:
  /// A number as the shortest text that reads back the same; a date as TOML has it.
  static std::string Text(const toml::node& node) {
    if (const auto* text = node.as_string()) {
      return text->get();
    }
    if (const auto* whole = node.as_integer()) {
      return std::to_string(whole->get());
    }
    if (const auto* real = node.as_floating_point()) {
      return fmt::format("{}", real->get());
    }
    if (const auto* truth = node.as_boolean()) {
      return truth->get() ? "true" : "false";
    }
    std::ostringstream text;
    node.visit([&](const auto& date) {
      if constexpr (toml::is_value<decltype(date)>) {
        text << date.get();
      }
    });
    return text.str();
  }

  std::string path_, file_;
};

}  // namespace

Result<ConfigValue> ParseToml(std::string_view text, const std::string& path) {
  try {
    const toml::table table = toml::parse(text, path);
    ConfigValue root = TomlConverter(path).Convert(table);
    root.where = fmt::format("{}:1", path);
    return root;
  } catch (const toml::parse_error& error) {
    return Error{ErrorCode::bad_input, fmt::format("{}:{}", path, error.source().begin.line),
                 fmt::format("is not valid TOML: {}", error.description()),
                 "is every bracket and quote closed, and every key given once?"};
  }
}

}  // namespace tidemark
