// SPDX-License-Identifier: Apache-2.0
#include "models/job/cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "models/job/validate.h"

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

void SeparateTiedCopy(StageBlocks& last) {
  std::vector<Parameter>& head = last.runs.back().block.parameters;
  for (std::uint32_t i = 0; i < head.size(); ++i) {
    if (head[i].tied) {
      head[i].tied = false;
      last.tied_copy = i;
    }
  }
}

}  // namespace

Result<std::vector<StageBlocks>> CutIntoBlocks(const Job& job) {
  TIDEMARK_ASSIGN(const std::vector<BlockRun> runs, BuildBlocks(job.network, PartitionOf(job)));
  const auto layers = std::max_element(runs.begin(), runs.end(),
                                       [](const BlockRun& a, const BlockRun& b) { return a.count < b.count; });
  if (job.layout.pp > 1 && std::holds_alternative<Table>(job.network.shape)) {
    return BadInput("a table network cannot be cut into pipeline stages", "set layout.pp to 1");
  }
  TIDEMARK_ASSIGN(const std::vector<std::int64_t> counts,
                  job.layout.Stages() == 1 ? Result<std::vector<std::int64_t>>(std::vector<std::int64_t>{layers->count})
                                           : LayersPerStage(job, layers->count));
  std::vector<StageBlocks> stages(counts.size());
  for (std::size_t i = 0; i < stages.size(); ++i) {
    StageBlocks& stage = stages[i];
    stage.layers_before = i == 0 ? 0 : stages[i - 1].layers_before + counts[i - 1];
    if (i == 0) {
      stage.runs.assign(runs.begin(), layers);
    }
    stage.layer_run = stage.runs.size();
    stage.runs.push_back({layers->block, counts[i]});
    if (i + 1 == stages.size()) {
      stage.runs.insert(stage.runs.end(), layers + 1, runs.end());
    }
  }
  if (stages.size() > 1) {
    SeparateTiedCopy(stages.back());
  }
  return stages;
}

}  // namespace tidemark
