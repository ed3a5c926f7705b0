// SPDX-License-Identifier: Apache-2.0
#include "models/job/cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
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

/// What a tied head keeps, where the embedding is on another stage.
std::optional<std::uint32_t> SeparateTiedCopy(Block& head) {
  std::optional<std::uint32_t> copy;
  for (std::uint32_t i = 0; i < head.parameters.size(); ++i) {
    if (head.parameters[i].tied) {
      head.parameters[i].tied = false;
      copy = i;
    }
  }
  return copy;
}

}  // namespace

Result<NetworkCut> CutNetwork(const Job& job) {
  NetworkCut cut;
  TIDEMARK_ASSIGN(cut.runs, BuildBlocks(job.network, PartitionOf(job)));
  const auto layers = std::max_element(cut.runs.begin(), cut.runs.end(),
                                       [](const BlockRun& a, const BlockRun& b) { return a.count < b.count; });
  cut.layer_run = static_cast<std::size_t>(layers - cut.runs.begin());
  if (job.layout.pp > 1 && std::holds_alternative<Table>(job.network.shape)) {
    return BadInput("a table network cannot be cut into pipeline stages", "set layout.pp to 1");
  }
  if (job.layout.Stages() == 1) {
    cut.layers = {layers->count};
    return cut;
  }
  TIDEMARK_ASSIGN(cut.layers, LayersPerStage(job, layers->count));
  if (cut.layers.size() > 1) {
    cut.tied_copy = SeparateTiedCopy(cut.runs.back().block);
  }
  return cut;
}

Result<std::vector<StageBlocks>> CutIntoBlocks(const Job& job) {
  TIDEMARK_ASSIGN(const NetworkCut cut, CutNetwork(job));
  const auto layers = cut.runs.begin() + static_cast<std::ptrdiff_t>(cut.layer_run);
  std::vector<StageBlocks> stages(cut.layers.size());
  for (std::size_t i = 0; i < stages.size(); ++i) {
    StageBlocks& stage = stages[i];
    stage.layers_before = i == 0 ? 0 : stages[i - 1].layers_before + cut.layers[i - 1];
    if (i == 0) {
      stage.runs.assign(cut.runs.begin(), layers);
    }
    stage.layer_run = stage.runs.size();
    stage.runs.push_back({layers->block, cut.layers[i]});
    if (i + 1 == stages.size()) {
      stage.runs.insert(stage.runs.end(), layers + 1, cut.runs.end());
    }
  }
  stages.back().tied_copy = cut.tied_copy;
  return stages;
}

}  // namespace tidemark
