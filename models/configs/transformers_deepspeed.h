// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// An argument of Hugging Face's Trainer and the field of DeepSpeed's config that it fills in for "auto".
struct DeepSpeedArgument {
  std::string_view theirs;  ///< "gradient_clipping"
  std::string_view name;    ///< "max_grad_norm"
  ConfigValue value;
  bool always = false;  ///< also where the config has no such field: accelerate adds it
  bool asked = false;   ///< on the command line, which comes before both files
};

/// The config that TrainingArguments' `deepspeed` stands for: itself, or the file that it names, by a path from the
/// current folder (as Hugging Face reads it) or from the folder of its own file. `alone` is the command that prices
/// that file by itself.
Result<ConfigValue> FindDeepSpeedConfig(const ConfigValue& deepspeed, std::string_view alone);

/// That config with the arguments in place of "auto" (HfTrainerDeepSpeedConfig.trainer_config_process). Refused, as
/// there, where both say something and it differs.
Result<ConfigValue> FillIn(ConfigValue config, const std::vector<DeepSpeedArgument>& arguments);

}  // namespace tidemark
