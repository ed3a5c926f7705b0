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
  /// Of each run the model's number of its first layer, and of the first that stays gathered (RunPart::gathered):
  /// behind its last one where none does. 0 where it has no layers.
  std::vector<std::int64_t> first_layer, first_gathered;
  std::optional<std::uint32_t> tied_copy;  ///< parameter of the last block that copies one of the first stage's
};

/// So many layers of one of a network's runs.
struct RunPart {
  std::size_t run = 0;
  std::int64_t count = 0;
  std::int64_t gathered = 0;  ///< the last ones of these, if the stage's last `shard.gathered_layers` are among them
  friend bool operator==(const RunPart&, const RunPart&) = default;
};

/// The whole network's blocks, and which of its layers each stage gets.
struct NetworkCut {
  std::vector<BlockRun> runs;
  std::size_t layers_begin = 0, layers_end = 0;  ///< which of them are the layers, `layers_end` not among them
  std::vector<std::vector<RunPart>> layers;      ///< by stage
  std::optional<std::uint32_t> tied_copy;        ///< parameter of the last block that copies one of the first stage's
};

/// Cuts the network into `job.layout.Stages()` stages by `layout.layers_per_stage`, or evenly. The layers are the
/// longest run of layers and the runs of layers beside it; where no block is a layer, the longest run. What stands
/// before them goes to the first stage, what stands behind them to the last. A tied head on another stage than its
/// embedding keeps a copy of its own. A table network is not cut.
Result<NetworkCut> CutNetwork(const Job& job);

/// The same, each stage with blocks of its own.
Result<std::vector<StageBlocks>> CutIntoBlocks(const Job& job);

}  // namespace tidemark
