// SPDX-License-Identifier: Apache-2.0
#include "models/configs/flatten.h"

#include <fmt/format.h>

#include <vector>

#include "base/text.h"

namespace tidemark {
namespace {

/// Whether some key lies below `section`.
bool IsSection(const std::string& section, const std::set<std::string>& keys) {
  const auto next = keys.lower_bound(section + ".");
  return next != keys.end() && next->starts_with(section + ".");
}

std::string KeysBelow(const std::string& section, const std::set<std::string>& keys) {
  std::vector<std::string> below;
  for (auto key = keys.lower_bound(section + "."); key != keys.end() && key->starts_with(section + "."); ++key) {
    below.push_back(key->substr(section.size() + 1));
  }
  return fmt::format("{}", fmt::join(below, ", "));
}

Status FlattenInto(Settings& settings, const ConfigValue& map, const std::string& prefix,
                   const std::set<std::string>& keys, const std::set<std::string>& nullable) {
  for (const auto& [name, value] : map.fields) {
    const std::string key = prefix + name;
    if (value.is_map() && IsSection(key, keys)) {
      TIDEMARK_TRY(FlattenInto(settings, value, key + ".", keys, nullable));
    } else if (keys.contains(key)) {
      if (!value.is_null() || !nullable.contains(key)) {
        settings[key] = value;
      }
    } else if (IsSection(key, keys)) {
      if (!value.is_null()) {
        return ErrorAt(value, key, fmt::format("expected a section, found {}", Describe(value)),
                       fmt::format("its keys are {}", KeysBelow(key, keys)));
      }
    } else {
      return UnknownKey(value, key, keys);
    }
  }
  return Done{};
}

}  // namespace

Error UnknownKey(const ConfigValue& value, const std::string& key, const std::set<std::string>& keys) {
  const auto below = keys.lower_bound(key + ".");
  if (below != keys.end() && below->starts_with(key + ".")) {
    return ErrorAt(value, key, "is a group of keys, not a value", fmt::format("its keys are {}", KeysBelow(key, keys)));
  }
  std::vector<std::string> candidates(keys.begin(), keys.end());
  for (const std::string& known : keys) {
    const std::size_t dot = known.find('.');
    if (dot != std::string::npos && (candidates.empty() || candidates.back() != known.substr(0, dot))) {
      candidates.push_back(known.substr(0, dot));
    }
  }
  std::string nearest = Nearest(key, candidates);
  // "tp" alone is not near to "layout.tp" by letters, but is what was meant.
  for (const std::string& known : keys) {
    if (nearest.empty() && known.ends_with("." + key.substr(key.rfind('.') + 1))) {
      nearest = known;
    }
  }
  return ErrorAt(
      value, key, "there is no such key",
      nearest.empty() ? "the keys are those that `tidemark job JOB` prints" : fmt::format("did you mean {}?", nearest));
}

Result<Settings> Flatten(const ConfigValue& root, const std::set<std::string>& keys,
                         const std::set<std::string>& nullable) {
  if (!root.is_map()) {
    return ErrorAt(root, {}, fmt::format("expected a list of keys and values, found {}", Describe(root)));
  }
  Settings settings;
  TIDEMARK_TRY(FlattenInto(settings, root, {}, keys, nullable));
  return settings;
}

}  // namespace tidemark
