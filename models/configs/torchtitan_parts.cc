// SPDX-License-Identifier: Apache-2.0
#include "models/configs/torchtitan_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>
#include <variant>

#include "models/configs/field.h"
#include "models/configs/torchtitan_pipeline.h"
#include "models/configs/translation.h"
#include "models/job/read_network.h"

namespace tidemark {
namespace {

constexpr std::string_view kShards = "parallelism.data_parallel_shard_degree";
constexpr std::string_view kReplicas = "parallelism.data_parallel_replicate_degree";

Result<std::int64_t> Layers(const Settings& given, const Settings& settings) {
  std::map<std::string, std::string> sources;
  Settings said = given;
  if (!NamesNetwork(given)) {
    said.insert(settings.begin(), settings.end());
  }
  TIDEMARK_ASSIGN(const Network network, ReadNetwork(said, {}, sources));
  const auto* decoder = std::get_if<Decoder>(&network.shape);
  return decoder == nullptr ? Result<std::int64_t>(BadInput("a pipeline is of a decoder's layers")) : decoder->layers;
}

}  // namespace

Result<TorchtitanRanks> ReadTorchtitanLayout(const ToolFields& fields, const Settings& given, Settings& settings) {
  settings["layout.tp"] = fields.Value("parallelism.tensor_parallel_degree", "1");
  settings["layout.pp"] = fields.Value("parallelism.pipeline_parallel_degree", "1");
  TorchtitanRanks ranks;
  TIDEMARK_ASSIGN(ranks.replicas, fields.Whole(kReplicas, 1));
  TIDEMARK_ASSIGN(const std::int64_t shards, fields.Whole(kShards, -1, -1));
  if (const ConfigValue* all = Find(given, "layout.dp")) {
    TIDEMARK_ASSIGN(ranks.all, (WholeNumber{1, 1 << 20}.Read(*all).At("layout.dp")));
    return ranks;
  }
  if (shards < 1) {
    return fields.Refuse(
        kShards, "-1", "takes all ranks there are, and a config does not say how many",
        "add --set layout.dp=8 (as many as there are, divided by tensor_parallel_degree * pipeline_parallel_degree"
        " * layout.cp)");
  }
  ranks.all = ranks.replicas * shards;
  settings["layout.dp"] = fields.Retold(kShards, "-1", std::to_string(ranks.all));
  return ranks;
}

std::string TorchtitanPipelineRanks(const Settings& given, const Settings& settings) {
  const ConfigValue* ranks = Find(given, "layout.pp");
  return ranks == nullptr ? settings.at("layout.pp").text : ranks->text;
}

Status ReadTorchtitanSharding(const ToolFields& fields, const TorchtitanRanks& ranks, const Settings& given,
                              Settings& settings) {
  const bool pipeline = TorchtitanPipelineRanks(given, settings) != "1";
  settings["strategy"] = MakeScalar(pipeline ? "fsdp2-keep-all" : "fsdp2-scatter-each", "the config's format");
  if (ranks.replicas > 1) {
    settings["shard.replicas"] = fields.Retold(kReplicas, "1", std::to_string(ranks.replicas));
  }
  constexpr std::string_view kReshard = "parallelism.fsdp_reshard_after_forward";
  const Choice<std::string> choice{{{"default", "default"}, {"always", "always"}, {"never", "never"}}};
  TIDEMARK_ASSIGN(const std::string reshard, fields.OneOf(choice, kReshard, "default"));
  if (reshard != "default") {
    const bool always = reshard == "always";
    settings["shard.reshard_after_forward"] = fields.Retold(kReshard, "default", always ? "true" : "false");
    if (always) {
      settings["shard.reshard_last_unit"] = fields.Retold(kReshard, "default", "true");
    }
  }
  return Done{};
}

Status ReadTorchtitanStages(const ToolFields& fields, const Settings& given, Settings& settings) {
  TIDEMARK_ASSIGN(
      const std::int64_t ranks,
      (WholeNumber{1, 1 << 10}.Read(MakeScalar(TorchtitanPipelineRanks(given, settings), {})).At("layout.pp")));
  if (ranks == 1) {
    return Done{};
  }
  for (const char* key : {"schedule", "layout.vpp", "layout.layers_per_stage"}) {
    if (Speaks(given, key)) {
      return Done{};  // who says one of these says how the pipeline is made
    }
  }
  TIDEMARK_ASSIGN(const std::int64_t layers, Layers(given, settings));
  return ReadTorchtitanPipeline(fields, ranks, layers, settings);
}

Status ReadTorchtitanPrecision(const ToolFields& fields, Settings& settings) {
  const Choice<std::string> types{{{"bfloat16", "bf16"}, {"float32", "fp32"}}};
  constexpr std::string_view kStored = "training.dtype", kComputed = "training.mixed_precision_param";
  TIDEMARK_ASSIGN(const std::string stored, fields.OneOf(types, kStored, "float32"));
  TIDEMARK_ASSIGN(const std::string computed, fields.OneOf(types, kComputed, "bfloat16"));
  settings["precision.params"] = fields.Retold(kComputed, "bfloat16", computed);
  settings["precision.gradients"] = fields.Retold(kComputed, "bfloat16", computed);
  settings["precision.optimizer"] = fields.Retold(kStored, "float32", stored);
  settings["precision.master"] = fields.Retold(kStored, "float32", stored == computed ? "none" : stored);
  for (const char* key : {"precision.reduce", "precision.accumulate"}) {  // of FSDP2, which knows no other
    settings[key] = MakeScalar("fp32", "default of torchtitan");
  }
  return Done{};
}

Status ReadTorchtitanCompiling(const ToolFields& fields, const Settings& given, Settings& settings) {
  TIDEMARK_ASSIGN(bool compiled, fields.IsTrue("compile.enable"));
  if (const ConfigValue* components = fields.Given("compile.components")) {
    if (components->kind != ConfigValue::Kind::list) {
      return ErrorAt(*components, "compile.components",
                     fmt::format("expected a list of what is compiled, found {}", Describe(*components)),
                     "[\"model\", \"loss\"] for instance");
    }
    compiled =
        compiled && std::ranges::any_of(components->items, [](const ConfigValue& one) { return one.text == "model"; });
  }
  for (const char* key : {"buffers.fused_glu", "buffers.fused_rope", "recompute.needed_only"}) {
    settings[key] = fields.Retold("compile.enable", "false", compiled ? "true" : "false");
  }
  const ConfigValue* policy = Find(Speaks(given, "recompute.policy") ? given : settings, "recompute.policy");
  if (policy != nullptr && policy->text == "none") {
    settings.erase("recompute.needed_only");
  }
  if (policy != nullptr && policy->text == "per_op") {
    settings.erase("buffers.fused_rope");  // which it leaves no choice
  }
  return Done{};
}

Status RefuseForcedShapes(const ToolFields& fields, const std::string& path) {
  const ConfigValue* shapes = fields.Given(path);
  if (shapes != nullptr && shapes->kind != ConfigValue::Kind::list) {
    return ErrorAt(*shapes, path, fmt::format("expected a list of names, found {}", Describe(*shapes)), "[] for none");
  }
  for (const ConfigValue& name : shapes == nullptr ? std::vector<ConfigValue>() : shapes->items) {
    if (name.text != "moe.router.gate") {
      return ErrorAt(*shapes, path, "products that are done again by their shapes are not supported by this version",
                     "set it to [] to price what torchtitan's list keeps");
    }
  }
  return Done{};
}

}  // namespace tidemark
