// SPDX-License-Identifier: Apache-2.0
#include "models/configs/megatron_pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/configs/translation.h"

namespace tidemark {
namespace {

/// Model chunks on each rank.
Result<std::int64_t> ReadChunks(const ToolFields& fields, std::int64_t ranks, std::int64_t layers) {
  constexpr std::string_view kLayers = "num-layers-per-virtual-pipeline-stage",
                             kChunks = "num-virtual-stages-per-pipeline-rank";
  if (!fields.Has(kLayers)) {
    return fields.Whole(kChunks, 1);
  }
  TIDEMARK_ASSIGN(const std::int64_t of_chunk, fields.Whole(kLayers, 1));
  if (layers % (ranks * of_chunk) != 0) {
    return fields.Refuse(
        kLayers, "", fmt::format("{} layers on {} ranks are no whole number of chunks of {}", layers, ranks, of_chunk),
        "change it, or the number of layers");
  }
  return layers / ranks / of_chunk;
}

/// Layers of each stage where they do not simply divide, from the option that says so; empty where they do.
struct Stages {
  std::vector<std::int64_t> layers;
  std::string_view option;
};

Result<Stages> ReadStages(const ToolFields& fields, std::int64_t stages, std::int64_t layers) {
  constexpr std::string_view kEmbedding = "account-for-embedding-in-pipeline-split",
                             kLoss = "account-for-loss-in-pipeline-split", kFirst = "decoder-first-pipeline-num-layers",
                             kLast = "decoder-last-pipeline-num-layers";
  const auto all_alike = [&](std::int64_t of_stage) {
    return std::vector<std::int64_t>(static_cast<std::size_t>(stages), of_stage);
  };
  const std::int64_t embedding = fields.Has(kEmbedding) ? 1 : 0, loss = fields.Has(kLoss) ? 1 : 0;
  if (embedding + loss > 0) {
    Stages of{all_alike((layers + embedding + loss) / stages), embedding > 0 ? kEmbedding : kLoss};
    of.layers.front() -= embedding;
    of.layers.back() -= loss;
    return of;
  }
  if (!fields.Has(kFirst) && !fields.Has(kLast)) {
    return Stages{};
  }
  TIDEMARK_ASSIGN(const std::int64_t first, fields.Whole(kFirst, 0, 0));
  TIDEMARK_ASSIGN(const std::int64_t last, fields.Whole(kLast, 0, 0));
  const std::int64_t others = stages - (fields.Has(kFirst) ? 1 : 0) - (fields.Has(kLast) ? 1 : 0);
  Stages of{all_alike(others > 0 ? (layers - first - last) / others : 0), fields.Has(kFirst) ? kFirst : kLast};
  of.layers.front() = fields.Has(kFirst) ? first : of.layers.front();
  of.layers.back() = fields.Has(kLast) ? last : of.layers.back();
  return of;
}

}  // namespace

Status ReadMegatronPipeline(const ToolFields& fields, std::int64_t ranks, std::int64_t layers, const Settings& given,
                            Settings& settings) {
  constexpr std::string_view kGroup = "microbatch-group-size-per-virtual-pipeline-stage";
  const bool said =
      Speaks(given, "schedule") || Speaks(given, "layout.vpp") || Speaks(given, "layout.layers_per_stage");
  if (ranks == 1 || layers == 0 || said) {
    return Done{};
  }
  TIDEMARK_ASSIGN(const std::int64_t chunks, ReadChunks(fields, ranks, layers));
  TIDEMARK_ASSIGN(const std::int64_t group, fields.Whole(kGroup, ranks));
  if (group != ranks && chunks > 1) {
    return fields.Refuse(kGroup, "", "groups of another size than the pipeline's are not supported by this version",
                         "leave it out to price the job without");
  }
  settings["layout.vpp"] = MakeScalar(std::to_string(chunks), "the config's format");
  settings["schedule"] = MakeScalar(chunks > 1 ? "interleaved" : "1f1b", "the config's format");
  TIDEMARK_ASSIGN(const Stages stages, ReadStages(fields, ranks * chunks, layers));
  if (stages.layers.empty()) {
    return Done{};
  }
  if (std::reduce(stages.layers.begin(), stages.layers.end()) != layers || std::ranges::min(stages.layers) < 0) {
    return fields.Refuse(stages.option, "",
                         fmt::format("{} layers cannot be divided so over {} stages", layers, ranks * chunks),
                         "change the number of layers or of stages");
  }
  ConfigValue list = fields.Retold(stages.option, "", {});
  list.kind = ConfigValue::Kind::list;
  for (const std::int64_t of_stage : stages.layers) {
    list.items.push_back(fields.Retold(stages.option, "", std::to_string(of_stage)));
  }
  settings["layout.layers_per_stage"] = std::move(list);
  return Done{};
}

}  // namespace tidemark
