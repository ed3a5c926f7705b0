// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// Refuses fields that this version does not know in sections that move memory or time, misspelt ones, and values that
/// are not modelled: torchtitan before 9810191b, torchtitan/config/job_config.py.
Status CheckTorchtitanFields(const ConfigValue& root);

}  // namespace tidemark
