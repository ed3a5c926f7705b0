// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/stage.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>

#include "models/job/cut.h"
#include "sim/lower/recompute.h"
#include "sim/program/layers.h"

namespace tidemark {
namespace {

/// The blocks of one run, wherever stages have them.
struct SharedBlocks {
  std::shared_ptr<const Block> usual;
  std::shared_ptr<const Block> turn;  ///< those of Stage::turns, where there are any
};

/// Lets layers do again in their backward pass what the job does not keep: all of them alike, or every n-th.
SharedBlocks Share(Block block, const Recompute& recompute) {
  if (block.parts.empty() || recompute.policy == Recompute::Policy::none) {
    return {std::make_shared<const Block>(std::move(block)), {}};
  }
  Block again = Recomputed(block, recompute);
  if (recompute.policy != Recompute::Policy::every_n || recompute.every == 1) {
    return {std::make_shared<const Block>(std::move(again)), {}};
  }
  block.tensors = again.tensors;
  return {std::make_shared<const Block>(std::move(block)), std::make_shared<const Block>(std::move(again))};
}

void Append(Stage& stage, const SharedBlocks& blocks, std::int64_t count, const Recompute& recompute) {
  stage.first.push_back(stage.blocks);
  stage.blocks += count;
  stage.runs.emplace_back(blocks.usual, count);
  stage.turns.push_back(blocks.turn ? Turns{blocks.turn, recompute.every, 0} : Turns{});
}

/// The blocks of layers that stay gathered, under a name of their own.
SharedBlocks Kept(Block block, const Recompute& recompute) {
  block.name = std::string(kKeptPrefix) + block.name;
  return Share(std::move(block), recompute);
}

/// torchtitan counts the layers that a process wraps, from 1 on and over all model parts of its pipeline rank, and
/// checkpoints those whose number `every` divides (torchtitan/distributed/activation_checkpoint.py, _apply_layer_sac).
void CountLayers(std::vector<Stage>& rank) {
  std::int64_t before = 0;
  for (Stage& stage : rank) {
    for (std::size_t run = 0; run < stage.runs.size(); ++run) {
      stage.turns[run].before = before;
      before += stage.runs[run].block().parts.empty() ? 0 : stage.runs[run].count;
      if (stage.turns[run].period > 0 &&
          before / stage.turns[run].period == stage.turns[run].before / stage.turns[run].period) {
        stage.turns[run].period = 0;  // none of these layers has its turn
      }
    }
  }
}

/// Both stages that hold a copy of a tied embedding add up their gradients.
void MarkTiedCopy(std::vector<Stage>& stages, const std::optional<std::uint32_t>& copy) {
  Stage& last = stages.back();
  if (copy) {
    last.tied_copy = {last.blocks - 1, *copy};
    const bool trained = last.runs.back().block().parameters[*copy].trainable;
    stages.front().exchanges_tied_gradient = last.exchanges_tied_gradient = trained;
  }
}

}  // namespace

RunRange Stage::RunsOfSide(std::int64_t side) const {
  std::int64_t towers = 0;
  for (const StageRun& run : runs) {
    towers = std::max(towers, run.block().tower + 1);
  }
  const std::int64_t tower = std::min(side, towers - 1);
  const auto in_tower = [tower](const StageRun& run) { return run.block().tower == tower; };
  const auto begin = std::find_if(runs.begin(), runs.end(), in_tower);
  const auto end = std::find_if_not(begin, runs.end(), in_tower);
  return {static_cast<std::size_t>(begin - runs.begin()), static_cast<std::size_t>(end - runs.begin())};
}

std::int64_t StoredElements(const Block& block) {
  std::int64_t elements = 0;
  for (const Parameter& parameter : block.parameters) {
    elements += parameter.tied ? 0 : parameter.elements;
  }
  return elements;
}

std::int64_t TrainableElements(const Block& block) {
  std::int64_t elements = 0;
  for (const Parameter& parameter : block.parameters) {
    elements += parameter.tied || !parameter.trainable ? 0 : parameter.elements;
  }
  return elements;
}

Result<std::vector<Stage>> CutIntoStages(const Job& job) {
  TIDEMARK_ASSIGN(NetworkCut cut, CutNetwork(job));
  const Recompute& recompute = job.axes.recompute;
  std::vector<SharedBlocks> blocks, kept(cut.runs.size());
  for (std::size_t run = 0; run < cut.runs.size(); ++run) {
    if (job.axes.shard.gathered_layers > 0 && run >= cut.layers_begin && run < cut.layers_end) {
      kept[run] = Kept(cut.runs[run].block, recompute);
    }
    blocks.push_back(Share(std::move(cut.runs[run].block), recompute));
  }
  std::vector<Stage> stages(cut.layers.size());
  std::int64_t layers_before = 0;
  for (std::size_t i = 0; i < stages.size(); ++i) {
    Stage& stage = stages[i];
    stage.index = static_cast<std::int64_t>(i);
    stage.count = static_cast<std::int64_t>(stages.size());
    stage.layers_before = layers_before;
    for (std::size_t run = 0; run < cut.layers_begin && stage.is_first(); ++run) {
      Append(stage, blocks[run], cut.runs[run].count, recompute);
    }
    for (const RunPart& part : cut.layers[i]) {
      layers_before += part.count;
      if (part.count > part.gathered) {
        Append(stage, blocks[part.run], part.count - part.gathered, recompute);
      }
      if (part.gathered > 0) {
        Append(stage, kept[part.run], part.gathered, recompute);
        stage.runs.back().stays_gathered = true;
      }
    }
    for (std::size_t run = cut.layers_end; run < blocks.size() && stage.is_last(); ++run) {
      Append(stage, blocks[run], cut.runs[run].count, recompute);
    }
  }
  MarkTiedCopy(stages, cut.tied_copy);
  return stages;
}

std::vector<std::vector<Stage>> DealOut(const Job& job, const std::vector<Stage>& stages) {
  if (job.layout.pp == 1) {
    std::vector<std::vector<Stage>> only = {stages};
    CountLayers(only.front());
    return only;
  }
  const PipelineSchedule& schedule = ScheduleOf(job.schedule);
  std::vector<std::vector<Stage>> ranks(static_cast<std::size_t>(job.layout.pp));
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const std::int64_t chunks = schedule.chunks(job.layout);
    for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
      const PipelinePlace place = schedule.place({static_cast<std::int64_t>(rank), job.layout.pp, chunks}, chunk);
      Stage& stage = ranks[rank].emplace_back(stages[static_cast<std::size_t>(place.stage)]);
      stage.place = place;
      stage.chunk = chunk;
    }
    CountLayers(ranks[rank]);
  }
  return ranks;
}

}  // namespace tidemark
