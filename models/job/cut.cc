// SPDX-License-Identifier: Apache-2.0
#include "models/job/cut.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <tuple>
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

/// A block that is a layer says of which parts it consists. A table network has none of these.
bool IsLayer(const BlockRun& run) { return !run.block.parts.empty(); }

void FindLayers(NetworkCut& cut) {
  const auto longest =
      std::max_element(cut.runs.begin(), cut.runs.end(), [](const BlockRun& one, const BlockRun& other) {
        return std::tuple(IsLayer(one), one.count) < std::tuple(IsLayer(other), other.count);
      });
  cut.layers_begin = static_cast<std::size_t>(longest - cut.runs.begin());
  cut.layers_end = cut.layers_begin + 1;
  if (!IsLayer(*longest)) {
    return;
  }
  while (cut.layers_begin > 0 && IsLayer(cut.runs[cut.layers_begin - 1])) {
    --cut.layers_begin;
  }
  while (cut.layers_end < cut.runs.size() && IsLayer(cut.runs[cut.layers_end])) {
    ++cut.layers_end;
  }
}

std::int64_t CountLayers(const NetworkCut& cut) {
  std::int64_t count = 0;
  for (std::size_t run = cut.layers_begin; run < cut.layers_end; ++run) {
    count += cut.runs[run].count;
  }
  return count;
}

/// Deals the layers out in their order, `counts` of them to each stage, of which the last `gathered` stay gathered.
std::vector<std::vector<RunPart>> DealOut(const NetworkCut& cut, const std::vector<std::int64_t>& counts,
                                          std::int64_t gathered) {
  std::vector<std::vector<RunPart>> stages;
  RunPart rest{cut.layers_begin, cut.runs[cut.layers_begin].count};
  for (const std::int64_t count : counts) {
    std::vector<RunPart>& stage = stages.emplace_back();
    for (std::int64_t wanted = count; wanted > 0;) {
      if (rest.count == 0) {
        rest = {rest.run + 1, cut.runs[rest.run + 1].count};
      }
      stage.push_back({rest.run, std::min(wanted, rest.count)});
      wanted -= stage.back().count;
      rest.count -= stage.back().count;
    }
    std::int64_t left = gathered;
    for (auto part = stage.rbegin(); part != stage.rend(); ++part) {
      part->gathered = std::min(left, part->count);
      left -= part->gathered;
    }
  }
  return stages;
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
  FindLayers(cut);
  const std::int64_t layers = CountLayers(cut);
  if (job.layout.pp > 1 && std::holds_alternative<Table>(job.network.shape)) {
    return BadInput("a table network cannot be cut into pipeline stages", "set layout.pp to 1");
  }
  const std::int64_t gathered = job.axes.shard.gathered_layers;
  if (job.layout.Stages() == 1) {
    cut.layers = DealOut(cut, {layers}, gathered);
    return cut;
  }
  TIDEMARK_ASSIGN(const std::vector<std::int64_t> counts, LayersPerStage(job, layers));
  cut.layers = DealOut(cut, counts, gathered);
  if (cut.layers.size() > 1) {
    cut.tied_copy = SeparateTiedCopy(cut.runs.back().block);
  }
  return cut;
}

Result<std::vector<StageBlocks>> CutIntoBlocks(const Job& job) {
  TIDEMARK_ASSIGN(const NetworkCut cut, CutNetwork(job));
  std::vector<StageBlocks> stages(cut.layers.size());
  std::int64_t layer = 0;
  const auto add = [](StageBlocks& stage, BlockRun run, std::int64_t first_layer, std::int64_t first_gathered) {
    stage.runs.push_back(std::move(run));
    stage.first_layer.push_back(first_layer);
    stage.first_gathered.push_back(first_gathered);
  };
  for (std::size_t run = 0; run < cut.layers_begin; ++run) {
    add(stages.front(), cut.runs[run], 0, 0);
  }
  for (std::size_t i = 0; i < stages.size(); ++i) {
    for (const RunPart& part : cut.layers[i]) {
      const std::int64_t end = layer + part.count;
      add(stages[i], {cut.runs[part.run].block, part.count}, layer, end - part.gathered);
      layer = end;
    }
  }
  for (std::size_t run = cut.layers_end; run < cut.runs.size(); ++run) {
    add(stages.back(), cut.runs[run], 0, 0);
  }
  stages.back().tied_copy = cut.tied_copy;
  return stages;
}

}  // namespace tidemark
