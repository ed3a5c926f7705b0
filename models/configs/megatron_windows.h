// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "models/configs/tool_fields.h"
#include "models/configs/value.h"

namespace tidemark {

/// `window-size` and `window-attn-skip-freq`.
Status ReadMegatronWindows(const ToolFields& fields, Settings& settings);

}  // namespace tidemark
