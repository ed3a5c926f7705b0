// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "models/configs/transformers_fields.h"
#include "models/configs/value.h"

namespace tidemark {

/// The job of Hugging Face's TrainingArguments, as ConfigFormat::read gives it: also for tools that make them of fields
/// of their own.
Result<Settings> ReadTrainingArguments(const ConfigValue& root, Recipe recipe, const Settings& given);

/// ConfigFormat::of_code of such jobs.
std::vector<std::string> KeysOfTransformersCode();

}  // namespace tidemark
