// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// Refuses fields that this version does not know in sections that move memory or time, and values that are not
/// modelled, of what torchtitan saves of a config: b5bcd76c, torchtitan/config/configs.py and trainer.py.
Status CheckTorchtitanSavedFields(const ConfigValue& root);

}  // namespace tidemark
