// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/stage.h"

#include <algorithm>

#include "models/job/cut.h"
#include "sim/lower/recompute.h"

namespace tidemark {
namespace {

void Append(Stage& stage, BlockRun run) {
  stage.first.push_back(stage.blocks);
  stage.blocks += run.count;
  stage.runs.push_back(std::move(run));
  stage.turns.emplace_back();
}

/// Lets layers do again in their backward pass what the job does not keep: all of them alike, or every n-th.
void DoLayersAgain(Stage& stage, const Recompute& recompute) {
  const bool some = recompute.policy == Recompute::Policy::every_n && recompute.every > 1;
  for (std::size_t run = 0; run < stage.runs.size(); ++run) {
    Block& block = stage.runs[run].block;
    Block again = Recomputed(block, recompute);
    if (!some) {
      block = std::move(again);
    } else if (!block.parts.empty()) {
      block.tensors = again.tensors;
      stage.turns[run] = {std::move(again), recompute.every, 0};
    }
  }
}

/// torchtitan counts the layers that a process wraps, from 1 on and over all model parts of its pipeline rank, and
/// checkpoints those whose number `every` divides (torchtitan/distributed/activation_checkpoint.py, _apply_layer_sac).
void CountLayers(std::vector<Stage>& rank) {
  std::int64_t before = 0;
  for (Stage& stage : rank) {
    for (std::size_t run = 0; run < stage.runs.size(); ++run) {
      stage.turns[run].before = before;
      before += stage.runs[run].block.parts.empty() ? 0 : stage.runs[run].count;
      if (stage.turns[run].period > 0 &&
          before / stage.turns[run].period == stage.turns[run].before / stage.turns[run].period) {
        stage.turns[run].period = 0;  // none of these layers has its turn
      }
    }
  }
}

/// The layers of a stage; the last `gathered` of them as a run by itself.
void AppendLayers(Stage& stage, BlockRun layers, std::int64_t gathered) {
  const std::int64_t apart = std::min(gathered, layers.count);
  layers.count -= apart;
  if (layers.count > 0) {
    Append(stage, layers);
  }
  if (apart > 0) {
    layers.count = apart;
    layers.block.name = "kept " + layers.block.name;
    stage.gathered_run = stage.runs.size();
    Append(stage, std::move(layers));
  }
}

/// Both stages that hold a copy of a tied embedding add up their gradients.
void MarkTiedCopy(std::vector<Stage>& stages, const std::optional<std::uint32_t>& copy) {
  Stage& last = stages.back();
  if (copy) {
    last.tied_copy = {last.blocks - 1, *copy};
    const bool trained = last.runs.back().block.parameters[*copy].trainable;
    stages.front().exchanges_tied_gradient = last.exchanges_tied_gradient = trained;
  }
}

}  // namespace

RunRange Stage::RunsOfSide(std::int64_t side) const {
  std::int64_t towers = 0;
  for (const BlockRun& run : runs) {
    towers = std::max(towers, run.block.tower + 1);
  }
  const std::int64_t tower = std::min(side, towers - 1);
  const auto in_tower = [tower](const BlockRun& run) { return run.block.tower == tower; };
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
  TIDEMARK_ASSIGN(const std::vector<StageBlocks> cut, CutIntoBlocks(job));
  std::vector<Stage> stages(cut.size());
  for (std::size_t i = 0; i < stages.size(); ++i) {
    stages[i].index = static_cast<std::int64_t>(i);
    stages[i].count = static_cast<std::int64_t>(stages.size());
    stages[i].layers_before = cut[i].layers_before;
    for (std::size_t run = 0; run < cut[i].runs.size(); ++run) {
      if (run == cut[i].layer_run) {
        AppendLayers(stages[i], cut[i].runs[run], job.axes.shard.gathered_layers);
      } else {
        Append(stages[i], cut[i].runs[run]);
      }
    }
  }
  MarkTiedCopy(stages, cut.back().tied_copy);
  for (Stage& stage : stages) {
    DoLayersAgain(stage, job.axes.recompute);
  }
  return stages;
}

std::vector<std::vector<Stage>> DealOut(const Job& job, const std::vector<Stage>& stages) {
  if (job.layout.pp == 1) {
    std::vector<std::vector<Stage>> only = {stages};
    CountLayers(only.front());
    return only;
  }
  const PipelineSchedule schedule = ScheduleOf(job.schedule);
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
