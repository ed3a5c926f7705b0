// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "models/configs/transformers_fields.h"
#include "models/configs/value.h"

namespace tidemark {

// What a command line of TrainingArguments has that a file of them has not: other spellings of their names, sections
// as JSON, and the words of the launcher in front of the script's name.

/// The arguments by the names that their dataclasses give them, also those of a launcher. HfArgumentParser takes
/// "--max-grad-norm" as well, and "--no_fused_optimizer" for a field that is true by itself. Where one stands there in
/// two spellings, the last counts. TRL's older use_liger is use_liger_kernel.
ConfigValue WithFieldNames(const ConfigValue& root);

/// A value that begins with a brace as the section that it is; any other stays as it is. `path` is the field's.
Result<ConfigValue> AsSection(const ConfigValue& value, std::string_view path);

/// The arguments with AsSection's for those fields whose sections are read.
Result<ConfigValue> WithSections(ConfigValue root);

/// The fields of launchers that this version looks at.
std::vector<std::string_view> LauncherFields();

/// Refuses what a launcher is asked for and TrainingArguments cannot say, unless `given` says it in its place.
Status CheckLauncher(const ConfigValue& root, Recipe recipe, const Settings& given);

/// Data-parallel ranks as the launcher counts them, at its place; null where it does not, or not as a number.
ConfigValue LaunchedRanks(const ConfigValue& root);

}  // namespace tidemark
