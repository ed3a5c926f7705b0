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

constexpr std::string_view kLayersOfChunk = "num-layers-per-virtual-pipeline-stage",
                           kChunks = "num-virtual-stages-per-pipeline-rank",
                           kGroup = "microbatch-group-size-per-virtual-pipeline-stage",
                           kEmbedding = "account-for-embedding-in-pipeline-split",
                           kLoss = "account-for-loss-in-pipeline-split", kFirst = "decoder-first-pipeline-num-layers",
                           kLast = "decoder-last-pipeline-num-layers";

std::int64_t One(bool counts) { return counts ? 1 : 0; }

/// Layers of each virtual stage, in order: stage `chunk * ranks + rank`.
using Stages = std::vector<std::int64_t>;

class Pipeline {
 public:
  Pipeline(const ToolFields& fields, std::int64_t ranks, std::int64_t layers)
      : fields_(fields), ranks_(ranks), layers_(layers) {}

  /// Model chunks on each rank.
  Result<std::int64_t> Chunks() const {
    if (!fields_.Has(kLayersOfChunk)) {
      return fields_.Whole(kChunks, 1);
    }
    TIDEMARK_ASSIGN(const std::int64_t of_chunk, fields_.Whole(kLayersOfChunk, 1));
    const std::int64_t counted = layers_ + One(fields_.Has(kEmbedding)) + One(fields_.Has(kLoss));
    if (counted % (ranks_ * of_chunk) != 0) {
      return fields_.Refuse(
          kLayersOfChunk, "",
          fmt::format("{} layers on {} ranks are no whole number of chunks of {}", counted, ranks_, of_chunk),
          "change it, or the number of layers");
    }
    return counted / ranks_ / of_chunk;
  }

  std::string_view OptionOfChunks() const { return fields_.Has(kLayersOfChunk) ? kLayersOfChunk : kChunks; }

  /// The option that makes stages differ; empty where layers simply divide.
  std::string_view OptionOfStages() const {
    for (const std::string_view option : {kEmbedding, kLoss, kFirst, kLast}) {
      if (fields_.Has(option)) {
        return option;
      }
    }
    return {};
  }

  Result<Stages> StagesOf(std::int64_t chunks) const {
    const std::int64_t count = ranks_ * chunks;
    if (count > layers_ + 2) {
      return fields_.Refuse(OptionOfStages(), "", fmt::format("{} stages are more than {} layers", count, layers_),
                            "change the number of layers or of stages");
    }
    Stages stages;
    if (fields_.Has(kEmbedding) || fields_.Has(kLoss)) {
      stages.assign(static_cast<std::size_t>(count),
                    (layers_ + One(fields_.Has(kEmbedding)) + One(fields_.Has(kLoss))) / count);
      stages.front() -= One(fields_.Has(kEmbedding));
      stages.back() -= One(fields_.Has(kLoss));
    } else {
      TIDEMARK_ASSIGN(const Stages of_ranks, LayersOfRanks());
      for (std::int64_t stage = 0; stage < count; ++stage) {
        stages.push_back(of_ranks[static_cast<std::size_t>(stage % ranks_)] / chunks);
      }
    }
    if (std::reduce(stages.begin(), stages.end()) != layers_) {
      return fields_.Refuse(OptionOfStages(), "",
                            fmt::format("{} layers cannot be divided so over {} stages", layers_, count),
                            "change the number of layers or of stages");
    }
    if (std::ranges::min(stages) < 1) {
      return fields_.Refuse(OptionOfStages(), "", "stages without layers are not supported by this version",
                            "say how many layers each has: --set layout.layers_per_stage=[...]");
    }
    return stages;
  }

 private:
  /// The first and the last rank may have layers of their own number; all others have as many as each other.
  Result<Stages> LayersOfRanks() const {
    TIDEMARK_ASSIGN(const std::int64_t first, fields_.Whole(kFirst, 0, 0));
    TIDEMARK_ASSIGN(const std::int64_t last, fields_.Whole(kLast, 0, 0));
    const std::int64_t others = ranks_ - One(fields_.Has(kFirst)) - One(fields_.Has(kLast));
    Stages ranks(static_cast<std::size_t>(ranks_), others > 0 ? (layers_ - first - last) / others : 0);
    ranks.front() = fields_.Has(kFirst) ? first : ranks.front();
    ranks.back() = fields_.Has(kLast) ? last : ranks.back();
    return ranks;
  }

  const ToolFields& fields_;
  std::int64_t ranks_, layers_;
};

}  // namespace

Result<std::int64_t> ReadMegatronPipeline(const ToolFields& fields, std::int64_t ranks, std::int64_t layers,
                                          const Settings& given, Settings& settings) {
  if (ranks == 1 || layers == 0) {
    return layers;
  }
  const Pipeline pipeline(fields, ranks, layers);
  const ConfigValue* said = Find(given, "layout.vpp");
  const WholeNumber some{1, 1 << 10};
  TIDEMARK_ASSIGN(const std::int64_t chunks, (said == nullptr ? pipeline.Chunks() : some.Read(*said).At("layout.vpp")));
  TIDEMARK_ASSIGN(const std::int64_t group, fields.Whole(kGroup, ranks));
  if (group != ranks && chunks > 1) {
    return fields.Refuse(kGroup, "", "groups of another size than the pipeline's are not supported by this version",
                         "leave it out to price the job without");
  }
  settings["layout.vpp"] = fields.Retold(pipeline.OptionOfChunks(), "", std::to_string(chunks));
  settings["schedule"] = fields.Retold(pipeline.OptionOfChunks(), "", chunks > 1 ? "interleaved" : "1f1b");
  const std::string_view option = pipeline.OptionOfStages();
  if (option.empty() || Speaks(given, "layout.layers_per_stage")) {
    return CeilDiv(layers, ranks * chunks);
  }
  TIDEMARK_ASSIGN(const Stages stages, pipeline.StagesOf(chunks));
  ConfigValue list = fields.Retold(option, "", {});
  list.kind = ConfigValue::Kind::list;
  for (const std::int64_t of_stage : stages) {
    list.items.push_back(fields.Retold(option, "", std::to_string(of_stage)));
  }
  settings["layout.layers_per_stage"] = std::move(list);
  return std::ranges::max(stages);
}

}  // namespace tidemark
