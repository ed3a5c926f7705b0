// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/result.h"
#include "models/job/job.h"
#include "models/network/block.h"
#include "sim/schedules/pipeline_schedule.h"

namespace tidemark {

/// One parameter of one block of a stage.
struct ParameterAt {
  std::int64_t position = 0;
  std::uint32_t parameter = 0;  ///< index into Block::parameters
  friend bool operator==(const ParameterAt&, const ParameterAt&) = default;
};

/// Runs of a stage, `end` not among them.
struct RunRange {
  std::size_t begin = 0, end = 0;
};

/// One pipeline stage: a contiguous part of the network's blocks. Blocks are counted by *position*, from 0 within the
/// stage; equal neighbours form a run.
struct Stage {
  std::int64_t index = 0, count = 1;  ///< of `count` stages
  PipelinePlace place;                ///< where it stands, as a chunk of the rank that holds it
  std::int64_t chunk = 0;             ///< which of that rank's chunks
  std::vector<BlockRun> runs;
  std::vector<std::int64_t> first;  ///< position of each run's first block
  std::int64_t blocks = 0;
  std::int64_t layers_before = 0;        ///< layers of the model on earlier stages
  bool exchanges_tied_gradient = false;  ///< holds one of two copies of a tied embedding; the other is on another stage
  ParameterAt tied_copy;                 ///< that copy
  std::optional<std::size_t> gathered_run;  ///< the last layers, where shard.gathered_layers sets them apart

  bool is_first() const { return index == 0; }
  bool is_last() const { return index == count - 1; }
  std::size_t RunOf(std::int64_t position) const;
  RunRange AllRuns() const { return {0, runs.size()}; }
  /// The runs of the tower that takes one side's input: the only one takes both.
  RunRange RunsOfSide(std::int64_t side) const;
  const Block& BlockAt(std::int64_t position) const { return runs[RunOf(position)].block; }
};

/// Parameters of a block that this rank stores and trains, elements.
std::int64_t StoredElements(const Block& block);
std::int64_t TrainableElements(const Block& block);

/// Cuts the network into `job.layout.Stages()` stages by `layout.layers_per_stage`, or evenly: the longest run is the
/// layers; what stands before it goes to the first stage, what stands behind it to the last. A table network is not
/// cut. The last `shard.gathered_layers` layers of a stage are a run of their own, with a name of their own.
Result<std::vector<Stage>> CutIntoStages(const Job& job);

/// What each rank of the pipeline holds: its chunks, in the order of their numbers.
std::vector<std::vector<Stage>> DealOut(const Job& job, const std::vector<Stage>& stages);

}  // namespace tidemark
