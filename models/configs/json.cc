// SPDX-License-Identifier: Apache-2.0
#include "models/configs/json.h"

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
