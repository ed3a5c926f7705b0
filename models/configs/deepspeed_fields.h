// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// Refuses fields that this version does not know in sections that move memory or time, misspelt ones, and values that
/// are not modelled: DeepSpeed at edaa7221, deepspeed/runtime/config.py, zero/config.py, zero/offload_config.py,
/// precision_config.py.
Status CheckDeepSpeedFields(const ConfigValue& root);

}  // namespace tidemark
