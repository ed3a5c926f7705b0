// SPDX-License-Identifier: Apache-2.0
#include "models/job/change.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "models/configs/flatten.h"
#include "models/job/fields.h"
#include "models/job/read.h"

namespace tidemark {
namespace {

/// All of a value comes from the place `where`.
void PlaceAt(ConfigValue& value, const std::string& where, std::string_view source) {
  value.where = where;
  value.source = source;
  for (ConfigValue& item : value.items) {
    PlaceAt(item, where, source);
  }
  for (ConfigValue::Entry& entry : value.fields) {
    PlaceAt(entry.value, where, source);
  }
}

/// What a file with nothing but this key would say: `{layout: {tp: 8}}` for layout.tp.
ConfigValue Nested(const std::string& key, ConfigValue value) {
  const std::size_t dot = key.rfind('.');
  ConfigValue map;
  map.kind = ConfigValue::Kind::map;
  map.where = value.where;
  map.source = value.source;
  map.fields.push_back({key.substr(dot + 1), std::move(value)});  // npos + 1 is 0
  return dot == std::string::npos ? map : Nested(key.substr(0, dot), std::move(map));
}

}  // namespace

Result<JobChange> ParseJobChange(const std::string& text, const std::string& option) {
  const std::string place = option + " " + Excerpt(text, 0);
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) {
    return Error{ErrorCode::bad_input, place, "expected key=value", fmt::format("for example {} layout.tp=8", option)};
  }
  JobChange change{text.substr(0, equals), {}};
  Result<ConfigValue> parsed = ParseConfig(text.substr(equals + 1), place);
  if (!parsed) {
    Error error = parsed.error();
    error.where = place;  // one line: its number says nothing
    error.hint = "the value is YAML: is every bracket and quote closed, and the whole quoted for the shell?";
    return error;
  }
  ConfigValue value = std::move(*parsed);
  PlaceAt(value, place, kCommandLine);
  if (value.is_map()) {
    TIDEMARK_ASSIGN(change.given, Flatten(Nested(change.key, std::move(value)), JobKeys()));
  } else if (JobKeys().contains(change.key)) {
    change.given[change.key] = std::move(value);
  } else {
    Error error = UnknownKey(value, change.key, JobKeys());
    error.where = place;
    return error;
  }
  return change;
}

Result<std::vector<JobChange>> ParseJobChanges(const std::vector<std::string>& texts) {
  std::vector<JobChange> changes;
  std::set<std::string> set;
  for (const std::string& text : texts) {
    TIDEMARK_ASSIGN(JobChange parsed, ParseJobChange(text, "--set"));
    const auto replaced = std::find_if(set.begin(), set.end(), [&](const std::string& name) {
      return ReplacesSection(parsed) && name.starts_with(parsed.key + ".") && !parsed.given.contains(name);
    });
    if (replaced != set.end()) {
      return BadInput(fmt::format("--set {} takes back the --set {} before it", text, *replaced),
                      fmt::format("set {} first, then what is different in it", parsed.key));
    }
    for (const auto& [name, value] : parsed.given) {
      set.insert(name);
    }
    changes.push_back(std::move(parsed));
  }
  return changes;
}

Result<JobChange> ChangeToTable(const std::string& name, const Table& table, const std::string& source) {
  TIDEMARK_ASSIGN(ConfigValue value, ParseConfig(TableYaml(name, table), source));
  PlaceAt(value, source, source);
  JobChange change{"network", {}};
  TIDEMARK_ASSIGN(change.given, Flatten(Nested(change.key, std::move(value)), JobKeys()));
  return change;
}

bool ReplacesSection(const JobChange& change) { return change.key == "network" || change.key == "machine"; }

void Apply(const JobChange& change, Settings& settings) {
  if (ReplacesSection(change)) {
    std::erase_if(settings, [&](const auto& setting) { return setting.first.starts_with(change.key); });
  }
  // Another system's defaults say nothing about this one. (Those of a training, not a system, have other sources.)
  if (change.key == "strategy") {
    std::erase_if(settings, [](const auto& setting) {
      return IsAxis(setting.first) && setting.second.source.starts_with("default of ");
    });
  }
  // A number, or a section of two: what is said last counts. Beside a number only the mean may be said.
  if (change.given.contains("sequence_length")) {
    settings.erase("sequence_length.max");
    settings.erase("sequence_length.mean");
  }
  if (change.given.contains("sequence_length.max")) {
    settings.erase("sequence_length");
  }
  for (const auto& [name, setting] : change.given) {
    settings.erase(name);
    if (!setting.is_null() || !NullableJobKeys().contains(name)) {
      settings[name] = setting;
    }
  }
}

}  // namespace tidemark
