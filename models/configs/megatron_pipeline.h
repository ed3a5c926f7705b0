// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "models/configs/tool_fields.h"
#include "models/configs/value.h"

namespace tidemark {

/// Schedule, model chunks and stages of a pipeline of `ranks` ranks over a network of `layers` layers, of Megatron-LM's
/// options (training/arguments.py, validate_args; core/transformer/transformer_block.py, get_num_layers_to_build):
/// layers divide evenly, embedding and loss counting as a layer each where the options say so, or the first and the
/// last rank have layers of their own number, which their chunks share. Returns the layers of the longest stage.
Result<std::int64_t> ReadMegatronPipeline(const ToolFields& fields, std::int64_t ranks, std::int64_t layers,
                                          const Settings& given, Settings& settings);

}  // namespace tidemark
