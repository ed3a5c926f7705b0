// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "models/configs/tool_fields.h"
#include "models/configs/value.h"

namespace tidemark {

// What torchtitan's configs say alike in TOML and since.

/// Data-parallel ranks, and how many replicas of the shards they are.
struct TorchtitanRanks {
  std::int64_t all = 1, replicas = 1;
  bool shards() const { return all > replicas; }
};

/// parallelism.data_parallel_*, as long as ranks are counted there or given; tensor and pipeline parallelism.
Result<TorchtitanRanks> ReadTorchtitanLayout(const ToolFields& fields, const Settings& given, Settings& settings);

/// The number of pipeline stages' ranks, as it is given or read.
std::string TorchtitanPipelineRanks(const Settings& given, const Settings& settings);

/// FSDP2 as the trainer uses it, which never calls set_requires_gradient_sync: every microbatch reduces, and in a
/// pipeline the last one for all.
Status ReadTorchtitanSharding(const ToolFields& fields, const TorchtitanRanks& ranks, const Settings& given,
                              Settings& settings);

/// Schedule and stages where nobody gives them. The network is what is given or read.
Status ReadTorchtitanStages(const ToolFields& fields, const Settings& given, Settings& settings);

Status ReadTorchtitanPrecision(const ToolFields& fields, Settings& settings);

/// What torch.compile fuses, eager code does in single operations; it also drops what nobody reads.
Status ReadTorchtitanCompiling(const ToolFields& fields, const Settings& given, Settings& settings);

/// Products that are recomputed by their shapes, beside a router's, which a dense network has not.
Status RefuseForcedShapes(const ToolFields& fields, const std::string& path);

}  // namespace tidemark
