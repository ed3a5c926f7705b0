// SPDX-License-Identifier: Apache-2.0
#include "models/configs/json.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

namespace tidemark {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kDeepestObject = 64;

/// Whether it is JSON without a key twice in an object, of which the parser would take the last, and not nested deeper
/// than a config is.
bool IsPlain(std::string_view text) {
  std::vector<std::set<std::string>> keys;
  bool plain = true;
  const Json::parser_callback_t watch = [&](int depth, Json::parse_event_t event, Json& value) {
    plain = plain && depth <= kDeepestObject;
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      keys.pop_back();
    } else if (event == Json::parse_event_t::key) {
      plain = plain && keys.back().insert(value.get<std::string>()).second;
    }
    return true;
  };
  const Json parsed = Json::parse(text, watch, false, true);
  return plain && !parsed.is_discarded();
}

ConfigValue Convert(const Json& json, const ConfigValue& place) {
  ConfigValue value = place;
  if (json.is_object()) {
    value.kind = ConfigValue::Kind::map;
    for (const auto& [key, field] : json.items()) {
      value.fields.push_back({key, Convert(field, place)});
    }
  } else if (json.is_array()) {
    value.kind = ConfigValue::Kind::list;
    for (const Json& item : json) {
      value.items.push_back(Convert(item, place));
    }
  } else if (!json.is_null()) {
    value.kind = ConfigValue::Kind::scalar;
    value.text = json.is_string() ? json.get<std::string>() : json.dump();
  }
  return value;
}

}  // namespace

std::string WithoutJsonComments(std::string_view text) {
  std::string plain(text);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') {
    return plain;
  }
  bool in_string = false;
  for (std::size_t at = first; at + 1 < plain.size(); ++at) {
    const bool begins = std::string_view(" \t\r\n,{}[]").find(plain[at - (at > 0 ? 1 : 0)]) != std::string_view::npos;
    if (in_string && plain[at] == '\\') {
      ++at;
    } else if (plain[at] == '"') {
      in_string = !in_string;
    } else if (!in_string && begins && plain[at] == '/' && (plain[at + 1] == '/' || plain[at + 1] == '*')) {
      const bool line = plain[at + 1] == '/';
      const std::size_t found = line ? plain.find('\n', at) : plain.find("*/", at + 2);
      const std::size_t end = found == std::string::npos ? plain.size() : found + (line ? 0 : 2);
      std::replace_if(
          plain.begin() + static_cast<std::ptrdiff_t>(at), plain.begin() + static_cast<std::ptrdiff_t>(end),
          [](char letter) { return letter != '\n'; }, ' ');
    }
  }
  return plain;
}

std::optional<ConfigValue> ParseJson(std::string_view text, const std::string& path) {
  if (!IsPlain(text)) {
    return std::nullopt;
  }
  ConfigValue place;
  place.where = path;
  place.source = std::filesystem::path(path).filename().string();
  return Convert(Json::parse(text, nullptr, false, true), place);
}

}  // namespace tidemark
