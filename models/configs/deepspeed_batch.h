// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/result.h"
#include "models/configs/value.h"

namespace tidemark {

/// A field of DeepSpeed's config, unless it is absent, null or "auto": that stands for what Hugging Face fills in.
const ConfigValue* Said(const ConfigValue& root, std::string_view path);

/// Micro batch, accumulation steps and data-parallel ranks, as far as they follow from the file and the command line
/// (`given`, which counts more). train_batch_size = micro batch * accumulation steps * ranks, in samples; two give the
/// third by whole division, and the product must hold (deepspeed/runtime/config.py, _set_batch_related_parameters and
/// _batch_assertion). With one of the two sizes alone, nothing is accumulated. What does not follow stays out.
Status ReadDeepSpeedBatch(const ConfigValue& root, const Settings& given, Settings& settings);

}  // namespace tidemark
