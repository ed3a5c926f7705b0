// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "models/configs/tool_fields.h"
#include "models/configs/value.h"

namespace tidemark {

/// Layers of each pipeline stage, in order, as torchtitan divides them where nobody names modules
/// (distributed/pipeline_parallel.py, generate_llm_fqn_per_model_part): the embedding counts as `first` layers of the
/// first stage, the head as `last` of the last; what does not divide goes to the first stages. Refuses stages with less
/// than one layer, or with fewer than those that embedding or head count as.
Result<std::vector<std::int64_t>> TorchtitanStages(std::int64_t stages, std::int64_t layers, std::int64_t first,
                                                   std::int64_t last);

/// Schedule, model chunks and stages of a pipeline of `ranks` ranks, as `degree` says, over a network of `layers`
/// layers (pipeline_llm).
Status ReadTorchtitanPipeline(const ToolFields& fields, const ConfigValue& degree, std::int64_t ranks,
                              std::int64_t layers, Settings& settings);

}  // namespace tidemark
