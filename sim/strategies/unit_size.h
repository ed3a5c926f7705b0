// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "sim/lower/stage.h"

namespace tidemark {

/// Elements of one FSDP unit. Dimension 0 of each parameter is padded to a multiple of the group size before it is cut
/// (fully_shard's FSDPParam), so a gathered unit is larger than its parameters.
struct UnitSize {
  std::int64_t elements = 0, padded = 0;
  std::int64_t trainable_padded = 0;
};

/// The units of a stage: one per block, except that a tied head joins the embedding's and leaves its own empty.
struct Units {
  std::vector<UnitSize> sizes;  ///< per run of the stage
  bool tied = false;
};

Units MeasureUnits(const Stage& stage, std::int64_t shards);

}  // namespace tidemark
