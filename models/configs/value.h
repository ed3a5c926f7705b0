// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace tidemark {

/// A piece of a config file as it was written, and where. What it means is decided by whoever reads it.
struct ConfigValue {
  enum class Kind : std::uint8_t { null, scalar, list, map } kind = Kind::null;
  struct Entry;
  std::string text;                ///< of a scalar
  std::vector<ConfigValue> items;  ///< of a list
  std::vector<Entry> fields;       ///< of a map, in the order of the file; keys differ
  std::string where;               ///< for errors: "runs/job.yaml:7"
  std::string source;              ///< for provenance: "job.yaml:7"

  /// The value of a key; null when this is not a map or has no such key.
  const ConfigValue* Find(std::string_view key) const;
  /// The same for a path of keys, "model.model_config.hidden_size".
  const ConfigValue* FindPath(std::string_view path) const;

  bool is_map() const { return kind == Kind::map; }
  bool is_null() const { return kind == Kind::null; }
};

struct ConfigValue::Entry {
  std::string key;
  ConfigValue value;
};

/// Dotted keys of a Tidemark job ("layout.tp") and what a config or the command line says about them. Readers of other
/// tools' configs translate into these.
using Settings = std::map<std::string, ConfigValue>;

/// What they say about a key; null where they say nothing.
const ConfigValue* Find(const Settings& settings, const std::string& key);

/// Parses YAML or JSON, also with comments. `path` is for error messages. Refuses several documents in one text, keys
/// that are repeated with other values, and texts that expand (through aliases) beyond what a config holds.
Result<ConfigValue> ParseConfig(std::string_view text, const std::string& path);

/// Where a path that a value names begins: the folder of its file, or, given on the command line (`--set`), where that
/// is typed.
std::string FolderOf(const ConfigValue& value, const std::string& folder_of_file);
inline constexpr std::string_view kCommandLine = "--set";  ///< ConfigValue::source

/// A scalar that no file contains: it was derived, or given on the command line.
ConfigValue MakeScalar(std::string text, std::string source);

/// A section without fields, at the place of `value`.
ConfigValue MapAt(const ConfigValue& value);

/// An error at the place of a value: "runs/job.yaml:7: layout.tp: ...".
Error ErrorAt(const ConfigValue& value, std::string_view key, std::string message, std::string hint = {});

/// What the value is, in words for an error message: "'eight'", "a list", "nothing".
std::string Describe(const ConfigValue& value);

}  // namespace tidemark
