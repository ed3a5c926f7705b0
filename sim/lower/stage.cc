// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/stage.h"

#include <fmt/format.h>

#include <algorithm>

#include "models/job/validate.h"
#include "sim/lower/recompute.h"

namespace tidemark {
namespace {

Result<std::vector<std::int64_t>> LayersPerStage(const Job& job, std::int64_t layers) {
  const std::int64_t stages = job.layout.Stages();
  if (!job.layout.layers_per_stage.empty()) {
    std::int64_t sum = 0;
    for (const std::int64_t count : job.layout.layers_per_stage) {
      sum += count;
    }
    if (static_cast<std::int64_t>(job.layout.layers_per_stage.size()) != stages || sum != layers) {
      return BadInput(
          fmt::format("layout.layers_per_stage names {} stages with {} layers in all, expected {} stages and {}",
                      job.layout.layers_per_stage.size(), sum, stages, layers));
    }
    return job.layout.layers_per_stage;
  }
  if (layers % stages != 0) {
    return BadInput(
        fmt::format("{} layers do not divide into {} pipeline stages", layers, stages),
        "set layout.pp * layout.vpp to a divisor, or give the layers of each stage in layout.layers_per_stage");
  }
  return std::vector<std::int64_t>(static_cast<std::size_t>(stages), layers / stages);
}

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

/// A tied head on another stage than its embedding keeps a copy of its own; both stages add up their gradients.
void SeparateTiedCopies(std::vector<Stage>& stages) {
  Stage& last = stages.back();
  std::vector<Parameter>& head = last.runs.back().block.parameters;
  for (std::uint32_t i = 0; i < head.size() && stages.size() > 1; ++i) {
    if (head[i].tied) {
      head[i].tied = false;
      last.tied_copy = {last.blocks - 1, i};
      stages.front().exchanges_tied_gradient = last.exchanges_tied_gradient = head[i].trainable;
    }
  }
}

}  // namespace

std::size_t Stage::RunOf(std::int64_t position) const {
  TIDEMARK_CHECK(position >= 0 && position < blocks);
  const auto after = std::upper_bound(first.begin(), first.end(), position);
  return static_cast<std::size_t>(after - first.begin()) - 1;
}

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
  TIDEMARK_ASSIGN(const std::vector<BlockRun> runs, BuildBlocks(job.network, PartitionOf(job)));
  const auto layers = std::max_element(runs.begin(), runs.end(),
                                       [](const BlockRun& a, const BlockRun& b) { return a.count < b.count; });
  const std::size_t layer_run = static_cast<std::size_t>(layers - runs.begin());
  if (job.layout.pp > 1 && std::holds_alternative<Table>(job.network.shape)) {
    return BadInput("a table network cannot be cut into pipeline stages", "set layout.pp to 1");
  }
  TIDEMARK_ASSIGN(const std::vector<std::int64_t> counts,
                  job.layout.Stages() == 1 ? Result<std::vector<std::int64_t>>(std::vector<std::int64_t>{layers->count})
                                           : LayersPerStage(job, layers->count));
  std::vector<Stage> stages(counts.size());
  for (std::size_t i = 0; i < stages.size(); ++i) {
    stages[i].index = static_cast<std::int64_t>(i);
    stages[i].count = static_cast<std::int64_t>(stages.size());
    stages[i].layers_before = i == 0 ? 0 : stages[i - 1].layers_before + counts[i - 1];
    for (std::size_t run = 0; run < runs.size(); ++run) {
      if (run == layer_run) {
        AppendLayers(stages[i], {runs[run].block, counts[i]}, job.axes.shard.gathered_layers);
      } else if (run < layer_run ? i == 0 : i + 1 == stages.size()) {
        Append(stages[i], runs[run]);
      }
    }
  }
  SeparateTiedCopies(stages);
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
