// SPDX-License-Identifier: Apache-2.0
#include "models/configs/torchtitan_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "models/configs/field.h"
#include "models/configs/torchtitan_pipeline.h"
#include "models/configs/translation.h"
#include "models/job/read_network.h"

namespace tidemark {
namespace {

constexpr std::string_view kShards = "parallelism.data_parallel_shard_degree";
constexpr std::string_view kReplicas = "parallelism.data_parallel_replicate_degree";

}  // namespace

const ConfigValue* TorchtitanJob::Saying(const std::string& key) const {
  const ConfigValue* given = Find(given_, key);
  return given == nullptr ? Find(settings_, key) : given;
}

std::string TorchtitanJob::Said(const std::string& key) const {
  const ConfigValue* said = Saying(key);
  return said == nullptr ? std::string() : said->text;
}

bool TorchtitanJob::DividesExperts() const {
  const std::string ranks = Said("layout.ep");
  return !ranks.empty() && ranks != "1";
}

Status TorchtitanJob::ReadLayout() {
  settings_["layout.tp"] = fields_.Value("parallelism.tensor_parallel_degree", "1");
  settings_["layout.pp"] = fields_.Value("parallelism.pipeline_parallel_degree", "1");
  TIDEMARK_ASSIGN(replicas_, fields_.Whole(kReplicas, 1));
  TIDEMARK_ASSIGN(const std::int64_t shards, fields_.Whole(kShards, -1, -1));
  if (const ConfigValue* ranks = Find(given_, "layout.dp")) {
    TIDEMARK_ASSIGN(ranks_, (WholeNumber{1, 1 << 20}.Read(*ranks).At("layout.dp")));
    return Done{};
  }
  if (shards < 1) {
    return fields_.Refuse(
        kShards, "-1", "takes all ranks there are, and a config does not say how many",
        "add --set layout.dp=8 (as many as there are, divided by tensor_parallel_degree * pipeline_parallel_degree"
        " * layout.cp)");
  }
  ranks_ = replicas_ * shards;
  Put("layout.dp", kShards, "-1", std::to_string(ranks_));
  return Done{};
}

Status TorchtitanJob::ReadExpertRanks() {
  constexpr std::string_view kEp = "parallelism.expert_parallel_degree";
  TIDEMARK_ASSIGN(const std::int64_t ranks, fields_.Whole(kEp, 1));
  Put("layout.ep", kEp, "1", std::to_string(ranks));
  if (DividesExperts()) {
    Put("shard.prefetch_forward", kEp, "1", "1");
  }
  return Done{};
}

Status TorchtitanJob::ReadSharding() {
  settings_["strategy"] = MakeScalar(IsPipeline() ? "fsdp2-keep-all" : "fsdp2-scatter-each", "the config's format");
  if (replicas_ > 1) {
    Put("shard.replicas", kReplicas, "1", std::to_string(replicas_));
  }
  constexpr std::string_view kReshard = "parallelism.fsdp_reshard_after_forward";
  const Choice<std::string> choice{{{"default", "default"}, {"always", "always"}, {"never", "never"}}};
  TIDEMARK_ASSIGN(const std::string reshard, fields_.OneOf(choice, kReshard, "default"));
  if (reshard == "always") {
    Put("shard.reshard_after_forward", kReshard, "default", "true");
    Put("shard.reshard_last_unit", kReshard, "default", "true");
  } else if (reshard == "never") {
    Put("shard.reshard_after_forward", kReshard, "default", "false");
  }
  TIDEMARK_ASSIGN(const bool offloads, fields_.IsTrue(kOffload));
  if (offloads) {
    Put("optimizer_step.offload", kOffload, "false", "true");
  }
  return Done{};
}

Status TorchtitanJob::ReadStages() {
  const ConfigValue degree = *Saying("layout.pp");
  TIDEMARK_ASSIGN(const std::int64_t ranks, (WholeNumber{1, 1 << 10}.Read(degree).At(degree.where + ": layout.pp")));
  if (ranks == 1) {
    return Done{};
  }
  for (const char* key : {"schedule", "layout.vpp", "layout.layers_per_stage"}) {
    if (Speaks(given_, key)) {
      return Done{};  // who says one of these says how the pipeline is made
    }
  }
  TIDEMARK_ASSIGN(const std::int64_t layers, Layers());
  return ReadTorchtitanPipeline(fields_, degree, ranks, layers, settings_);
}

Result<std::int64_t> TorchtitanJob::Layers() const {
  std::map<std::string, std::string> sources;
  Settings said = given_;
  if (!NamesNetwork(given_)) {
    said.insert(settings_.begin(), settings_.end());
  }
  TIDEMARK_ASSIGN(const Network network, ReadNetwork(said, {}, sources));
  const auto* decoder = std::get_if<Decoder>(&network.shape);
  return decoder == nullptr ? Result<std::int64_t>(BadInput("a pipeline is of a decoder's layers")) : decoder->layers;
}

Status TorchtitanJob::ReadPrecision() {
  const Choice<std::string> types{{{"bfloat16", "bf16"}, {"float32", "fp32"}}};
  constexpr std::string_view kStored = "training.dtype", kComputed = "training.mixed_precision_param";
  TIDEMARK_ASSIGN(const std::string stored, fields_.OneOf(types, kStored, "float32"));
  TIDEMARK_ASSIGN(const std::string computed, fields_.OneOf(types, kComputed, "bfloat16"));
  Put("precision.params", kComputed, "bfloat16", computed);
  Put("precision.gradients", kComputed, "bfloat16", computed);
  Put("precision.optimizer", kStored, "float32", stored);
  Put("precision.master", kStored, "float32", stored == computed ? "none" : stored);
  for (const char* key : {"precision.reduce", "precision.accumulate"}) {  // of FSDP2, which knows no other
    settings_[key] = MakeScalar("fp32", "default of torchtitan");
  }
  return Done{};
}

Status TorchtitanJob::ReadCompiling() {
  TIDEMARK_ASSIGN(bool compiled, fields_.IsTrue("compile.enable"));
  if (const ConfigValue* components = fields_.Given("compile.components")) {
    if (components->kind != ConfigValue::Kind::list) {
      return ErrorAt(*components, "compile.components",
                     fmt::format("expected a list of what is compiled, found {}", Describe(*components)),
                     "[\"model\", \"loss\"] for instance");
    }
    compiled =
        compiled && std::ranges::any_of(components->items, [](const ConfigValue& one) { return one.text == "model"; });
  }
  const std::string policy = Said("recompute.policy"), fuses = compiled ? "true" : "false";
  Put("buffers.fused_glu", "compile.enable", "false", fuses);
  if (policy != "per_op") {  // which leaves no choice
    Put("buffers.fused_rope", "compile.enable", "false", fuses);
  }
  if (policy != "none") {
    Put("recompute.needed_only", "compile.enable", "false", fuses);
  }
  return Done{};
}

Status TorchtitanJob::RefuseForcedShapes(const std::string& path) const {
  constexpr std::string_view kGate = "moe.router.gate";
  const ConfigValue* shapes = fields_.Given(path);
  if (shapes == nullptr) {
    return Done{};
  }
  const std::string hint = fmt::format("set it to [\"{}\"], the default, to price what torchtitan's list keeps", kGate);
  if (shapes->kind != ConfigValue::Kind::list) {
    return ErrorAt(*shapes, path, fmt::format("expected a list of names, found {}", Describe(*shapes)), hint);
  }
  if (std::ranges::any_of(shapes->items, [&](const ConfigValue& name) { return name.text != kGate; })) {
    return ErrorAt(*shapes, path, "products that are done again by their shapes are not supported by this version",
                   hint);
  }
  if (shapes->items.empty() && settings_.contains("network.experts.count")) {
    return ErrorAt(*shapes, path, "routers whose gate's output is kept are not supported by this version", hint);
  }
  return Done{};
}

Status TorchtitanJob::RefuseFlushes(std::string_view path, std::int64_t flushes, std::int64_t microbatches) const {
  if (flushes == 1 || Speaks(given_, "accumulation_steps")) {
    return Done{};
  }
  return fields_.Refuse(path, "-1",
                        fmt::format("is {} flushes of the pipeline, behind each of which torchtitan reduces "
                                    "gradients; this version reduces them once a step",
                                    flushes),
                        fmt::format("price one flush: --set accumulation_steps={}", microbatches));
}

Settings TorchtitanJob::Finish() {
  settings_["loss_scale"] = MakeScalar("global-tokens", "as torchtitan trains");
  settings_["machine"] = AssumedMachine();
  return std::move(settings_);
}

}  // namespace tidemark
