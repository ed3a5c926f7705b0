// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
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

/// The embedding that a tied head reads: the first parameter of the stage.
inline constexpr ParameterAt kTiedTo{0, 0};

/// Runs of a stage, `end` not among them.
struct RunRange {
  std::size_t begin = 0, end = 0;
};

/// `count` equal blocks in a row. Stages and their copies share what they have alike.
class StageRun {
 public:
  StageRun(std::shared_ptr<const Block> block, std::int64_t blocks) : count(blocks), block_(std::move(block)) {}

  const Block& block() const { return *block_; }

  std::int64_t count;
  bool stays_gathered = false;  ///< of the last layers, which shard.gathered_layers sets apart

 private:
  std::shared_ptr<const Block> block_;
};

/// Blocks of a run that are `block` instead: every `period`-th layer of the rank, none where it is 0. Equal in
/// parameters and forward actions; the run's own block has the tensors of both.
struct Turns {
  std::shared_ptr<const Block> block;
  std::int64_t period = 0;
  std::int64_t before = 0;  ///< layers of the rank before this run
};

/// One pipeline stage: a contiguous part of the network's blocks. Blocks are counted by *position*, from 0 within the
/// stage; equal neighbours form a run.
struct Stage {
  std::int64_t index = 0, count = 1;  ///< of `count` stages
  PipelinePlace place;                ///< where it stands, as a chunk of the rank that holds it
  std::int64_t chunk = 0;             ///< which of that rank's chunks
  std::vector<StageRun> runs;
  std::vector<std::int64_t> first;  ///< position of each run's first block
  std::vector<Turns> turns;         ///< of each run
  std::int64_t blocks = 0;
  std::int64_t layers_before = 0;        ///< layers of the model on earlier stages
  bool exchanges_tied_gradient = false;  ///< holds one of two copies of a tied embedding; the other is on another stage
  ParameterAt tied_copy;                 ///< that copy

  bool is_first() const { return index == 0; }
  bool is_last() const { return index == count - 1; }
  /// A stage has few runs.
  std::size_t RunOf(std::int64_t position) const {
    TIDEMARK_CHECK(position >= 0 && position < blocks);
    std::size_t run = 0;
    while (run + 1 < first.size() && first[run + 1] <= position) {
      ++run;
    }
    return run;
  }
  RunRange AllRuns() const { return {0, runs.size()}; }
  /// The runs of the tower that takes one side's input: the only one takes both.
  RunRange RunsOfSide(std::int64_t side) const;
  const Block& BlockAt(std::int64_t position) const {
    const std::size_t run = RunOf(position);
    return IsTurn(run, position) ? *turns[run].block : runs[run].block();
  }
  /// Whether the block at a position of `run` is one of those that `turns` sets apart.
  bool IsTurn(std::size_t run, std::int64_t position) const {
    return turns[run].period > 0 && Turn(run, position) == 0;
  }
  /// Where a position of `run` stands between two such blocks; 0 everywhere in a run that has none.
  std::int64_t Turn(std::size_t run, std::int64_t position) const {
    return turns[run].period > 0 ? (position - first[run] + turns[run].before + 1) % turns[run].period : 0;
  }
};

/// Parameters of a block that this rank stores and trains, elements.
std::int64_t StoredElements(const Block& block);
std::int64_t TrainableElements(const Block& block);

/// The stages of CutNetwork (models/job/cut.h). The last `shard.gathered_layers` layers of a stage are runs of
/// their own, with names of their own. Layers do again in their backward pass what `recompute` says.
Result<std::vector<Stage>> CutIntoStages(const Job& job);

/// What each rank of the pipeline holds: its chunks, in the order of their numbers, in which its layers take turns.
std::vector<std::vector<Stage>> DealOut(const Job& job, const std::vector<Stage>& stages);

}  // namespace tidemark
