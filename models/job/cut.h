// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "models/job/job.h"
#include "models/network/block.h"

namespace tidemark {

/// A contiguous part of a network's blocks, one stage of a pipeline.
struct StageBlocks {
  std::vector<BlockRun> runs;
  std::size_t layer_run = 0;               ///< which of the runs is the layers
  std::int64_t layers_before = 0;          ///< layers of the model on earlier stages
  std::optional<std::uint32_t> tied_copy;  ///< parameter of the last block that copies one of the first stage's
};

/// The whole network's blocks, and how many of its layers each stage gets.
struct NetworkCut {
  std::vector<BlockRun> runs;
  std::size_t layer_run = 0;               ///< which of them is the layers
  std::vector<std::int64_t> layers;        ///< by stage
  std::optional<std::uint32_t> tied_copy;  ///< parameter of the last block that copies one of the first stage's
};

/// Cuts the network into `job.layout.Stages()` stages by `layout.layers_per_stage`, or evenly: the longest run is the
/// layers; what stands before it goes to the first stage, what stands behind it to the last. A tied head on another
/// stage than its embedding keeps a copy of its own. A table network is not cut.
Result<NetworkCut> CutNetwork(const Job& job);

/// The same, each stage with blocks of its own.
Result<std::vector<StageBlocks>> CutIntoBlocks(const Job& job);

}  // namespace tidemark
