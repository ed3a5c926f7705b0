// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "models/configs/config.h"
#include "models/configs/tool_fields.h"

namespace tidemark {

/// Whether the options give layers experts: no number of them is none.
bool HasMegatronExperts(const ToolFields& fields);

/// What Megatron-LM's options say of experts: "network.experts." and the layout's `ep` and `etp`. `settings` has the
/// feed-forward network's width already, which is an expert's where it has none of its own.
Status ReadMegatronExperts(const ToolFields& fields, Settings& settings);

}  // namespace tidemark
