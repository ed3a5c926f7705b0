// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

// What readers of other tools' configs have in common.

/// The field at a path of keys ("optimizer.type"), unless it is absent or null.
const ConfigValue* Given(const ConfigValue& root, std::string_view path);

/// Another text at the place of `value`.
ConfigValue Retold(const ConfigValue& value, std::string text);

/// What stands for a machine that no config names.
ConfigValue AssumedMachine();

/// Whether settings name a network, not only something about one: a name, a file, a table or its layers.
bool NamesNetwork(const Settings& settings);

/// Whether settings say something about a key, or about a key below it ("network": "network.layers").
bool Speaks(const Settings& settings, std::string_view key);

/// A field of which one value is modelled.
struct OneValue {
  std::string_view path;
  std::string_view value;   ///< numbers compare as numbers, words without regard to case
  std::string_view reason;  ///< what is not modelled
  std::string_view hint = {};
};

/// Refuses any other value of these fields; absent and null ones pass.
Status RefuseOthers(const ConfigValue& root, std::span<const OneValue> fields);

/// Most fields of a config touch neither memory nor time and are passed over. One that is a letter or two away from a
/// field that does is a mistake, and would silently leave that field at its default. `sections` are searched ("" is
/// the top level); `known` are the paths of all fields that are read.
Status RefuseMisspelt(const ConfigValue& root, std::span<const std::string_view> sections,
                      std::span<const std::string_view> known);

/// A section whose fields mostly do touch memory or time, and those of them that do not.
struct ClosedSection {
  std::string_view path;
  std::span<const std::string_view> harmless;
};

/// Refuses what is no section where one belongs, and every field of one that is neither among `known` (paths) nor
/// harmless: this version does not know what it does.
Status RefuseUnknown(const ConfigValue& root, std::span<const ClosedSection> sections,
                     std::span<const std::string_view> known);

/// What a tool's configs never say and a job cannot do without.
struct Unsaid {
  std::string_view key, meaning, example;
};

/// Refuses a config where nobody says these, neither the file (`read`) nor the command line (`given`): one error for
/// all, with what to add. `tool` is the tool's name.
Status RefuseUnsaid(const ConfigValue& root, std::string_view tool, std::span<const Unsaid> unsaid,
                    const Settings& read, const Settings& given);

}  // namespace tidemark
