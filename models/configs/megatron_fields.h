// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// The options of Megatron-LM's command line, by their names without dashes: those of a command line, or those that a
/// test case of Megatron-LM's own has under MODEL_ARGS. What is false or null there is not passed, and left out here.
ConfigValue MegatronOptions(const ConfigValue& root);

/// Refuses programs of other networks, test cases that do not train (`root`), options that are a letter or two away
/// from one that moves memory or time, those of features that are not modelled, and values that the shell was to fill
/// in: Megatron-LM at d98e8a64 (August 2026), megatron/training/arguments.py and the dataclasses that it takes options
/// from.
Status CheckMegatronOptions(const ConfigValue& root, const ConfigValue& options);

}  // namespace tidemark
