// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
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

/// Whether two texts say the same: numbers compare as numbers, words without regard to case.
bool IsSameValue(std::string_view one, std::string_view other);

/// What stands for a machine that no config names.
ConfigValue AssumedMachine();

/// Whether settings name a network, not only something about one: a name, a file, a table or a decoder's sizes.
bool NamesNetwork(const Settings& settings);

/// Whether settings say something about a key, or about a key below it ("network": "network.layers").
bool Speaks(const Settings& settings, std::string_view key);

/// A field of which one value is modelled.
struct OneValue {
  std::string_view path;
  std::string_view value;   ///< as IsSameValue has it
  std::string_view reason;  ///< what is not modelled
  std::string_view hint = {};
};

/// Of tools whose ranks share sequences in another way than the ring of models/network/ring_attention.h.
inline constexpr std::string_view kOtherContext = "context parallelism other than Transformer Engine's ring";
inline constexpr std::string_view kOtherContextHint =
    "leave it out, and add --set layout.cp=N to price that ring instead";

/// Refuses any other value of these fields; absent and null ones pass.
Status RefuseOthers(const ConfigValue& root, std::span<const OneValue> fields);

/// Most fields of a config touch neither memory nor time and are passed over. One that is a letter or two away from a
/// field that does is a mistake, and would silently leave that field at its default. `sections` are searched ("" is
/// the top level); `known` are the paths of all fields that are read.
Status RefuseMisspelt(const ConfigValue& root, std::span<const std::string_view> sections,
                      std::span<const std::string_view> known);

/// A section whose fields mostly do touch memory or time, and those of them that do not. This version does not know
/// what any other one does.
struct ClosedSection {
  std::string_view path;
  std::span<const std::string_view> harmless;
};

/// All fields of a tool's configs that this version knows.
struct FieldTables {
  std::span<const std::string_view> sections;  ///< in which a misspelt field is looked for, as RefuseMisspelt does
  std::span<const ClosedSection> closed;
  std::span<const OneValue> one_value;
  std::span<const OneValue> one_value_at_times;  ///< the caller refuses other values of these (RefuseOthers)
  std::span<const std::string_view> read;        ///< paths of those that are read by name
  /// Sections that touch neither memory nor time, where these and the closed ones are all that there are.
  std::span<const std::string_view> harmless = {};
  std::string_view version = {};  ///< whose sections these are, "torchtitan in ..."; empty: any other is passed over
};

/// Refuses unknown sections, misspelt fields, what is no section where one belongs, fields of closed sections that
/// stand in none of the tables, and values that are not modelled.
Status CheckFields(const ConfigValue& root, const FieldTables& tables);

/// What a tool's configs never say and a job cannot do without.
struct Unsaid {
  std::string_view key, meaning, example;
};

/// What is said in the script that trains, or on its command line, where a config is an engine's or a launcher's.
inline constexpr std::array kSaidByScripts = {
    Unsaid{"network", "the network", "llama-3-8b"},
    Unsaid{"sequence_length", "the length of sequences", "4096"},
    Unsaid{"layout.dp", "the number of data-parallel ranks", "8"},
    Unsaid{"micro_batch_size", "the size of a micro batch", "1"},
    Unsaid{"accumulation_steps", "how many microbatches are accumulated", "4"},
};

/// Refuses a config where nobody says these, neither the file (`read`) nor the command line (`given`): one error for
/// all, with what to add. `tool` is the tool's name.
Status RefuseUnsaid(const ConfigValue& root, std::string_view tool, std::span<const Unsaid> unsaid,
                    const Settings& read, const Settings& given);

}  // namespace tidemark
