// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// The job of a DeepSpeed config, as ConfigFormat::read gives it: also for configs of tools that make one of their own.
Result<Settings> ReadDeepSpeed(const ConfigValue& file, const Settings& given);

}  // namespace tidemark
