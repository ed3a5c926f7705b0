// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// What accelerate makes of an FSDP plugin: strategy, shards and dtypes. `root` says the plugin's fields and
/// `mixed_precision` as accelerate's config does ("fsdp_config.fsdp_version"): also for tools that make one of their
/// own. Without mixed precision `given` says precision.params.
Result<Settings> ReadFsdpPlugin(const ConfigValue& root, const Settings& given);

}  // namespace tidemark
