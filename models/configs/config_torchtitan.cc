// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/text.h"
#include "models/configs/config.h"
#include "models/configs/field.h"
#include "models/configs/torchtitan_fields.h"
#include "models/configs/torchtitan_pipeline.h"
#include "models/configs/translation.h"
#include "models/job/read_network.h"

namespace tidemark {
namespace {

// torchtitan before 9810191b (2026-02-23), which was the last to read TOML: torchtitan/config/job_config.py (fields and
// defaults), train.py, distributed/parallel_dims.py, distributed/pipeline_parallel.py, models/llama3. What is not named
// here touches neither memory nor time.

/// The zoo's name of a flavor of models/llama3/__init__.py.
constexpr std::array kFlavors = {
    std::pair<std::string_view, std::string_view>{"8B", "llama-3-8b"},
    std::pair<std::string_view, std::string_view>{"70B", "llama-3-70b"},
    std::pair<std::string_view, std::string_view>{"405B", "llama-3.1-405b"},
};

/// Flavor debugmodel, which no zoo has.
constexpr std::array kDebugModel = {
    std::pair<std::string_view, std::string_view>{"name", "llama3 debugmodel"},
    std::pair<std::string_view, std::string_view>{"layers", "6"},
    std::pair<std::string_view, std::string_view>{"hidden", "256"},
    std::pair<std::string_view, std::string_view>{"ffn", "768"},  // 2/3 * 4 * 256, up to a multiple of 256
    std::pair<std::string_view, std::string_view>{"heads", "16"},
    std::pair<std::string_view, std::string_view>{"kv_heads", "16"},
    std::pair<std::string_view, std::string_view>{"vocabulary", "2048"},
};

constexpr std::array kOneValue = {
    OneValue{"training.enable_cpu_offload", "false", "parameters and optimizer in host memory under FSDP"},
    OneValue{"parallelism.disable_loss_parallel", "false", "whole logits on every tensor-parallel rank"},
    OneValue{"parallelism.enable_async_tensor_parallel", "false", "gathers that are fused with products",
             "set it to false: memory stays as it is, and times are those without"},
    OneValue{"parallelism.pipeline_parallel_schedule_csv", "", "schedules from a file"},
    OneValue{"parallelism.expert_tensor_parallel_degree", "1", "mixtures of experts"},
};

/// Fields that are read by name, beside those of the table.
constexpr std::string_view kOther[] = {"model.name",
                                       "model.flavor",
                                       "model.converters",
                                       "optimizer.name",
                                       "optimizer.implementation",
                                       "optimizer.early_step_in_backward",
                                       "training.local_batch_size",
                                       "training.global_batch_size",
                                       "training.seq_len",
                                       "training.max_norm",
                                       "training.dtype",
                                       "training.mixed_precision_param",
                                       "parallelism.data_parallel_replicate_degree",
                                       "parallelism.data_parallel_shard_degree",
                                       "parallelism.fsdp_reshard_after_forward",
                                       "parallelism.tensor_parallel_degree",
                                       "parallelism.pipeline_parallel_degree",
                                       "parallelism.pipeline_parallel_schedule",
                                       "parallelism.pipeline_parallel_microbatch_size",
                                       "parallelism.pipeline_parallel_layers_per_stage",
                                       "parallelism.pipeline_parallel_first_stage_less_layers",
                                       "parallelism.pipeline_parallel_last_stage_less_layers",
                                       "parallelism.module_fqns_per_model_part",
                                       "parallelism.context_parallel_degree",
                                       "parallelism.expert_parallel_degree",
                                       "activation_checkpoint.mode",
                                       "activation_checkpoint.selective_ac_option",
                                       "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns",
                                       "compile.enable"};

constexpr std::string_view kSections[] = {"model", "optimizer", "training", "parallelism", "activation_checkpoint"};

std::vector<std::string_view> KnownFields() {
  std::vector<std::string_view> known(std::begin(kOther), std::end(kOther));
  for (const OneValue& field : kOneValue) {
    known.push_back(field.path);
  }
  return known;
}

/// One config with what the command line says behind it.
class Titan {
 public:
  Titan(const ConfigValue& root, const Settings& given) : fields_(root), given_(given) {}

  Result<Settings> Read() {
    TIDEMARK_TRY(ReadFlavor());
    TIDEMARK_TRY(ReadLayout());
    TIDEMARK_TRY(ReadBatch());
    TIDEMARK_TRY(ReadStrategy());
    TIDEMARK_TRY(ReadPipeline());
    TIDEMARK_TRY(ReadPrecision());
    TIDEMARK_TRY(ReadRecomputation());
    TIDEMARK_TRY(ReadOptimizer());
    TIDEMARK_TRY(ReadKernels());
    settings_["loss_scale"] = MakeScalar("global-tokens", "default of torchtitan");
    settings_["machine"] = MakeScalar("h100-sxm-80gb", "assumed");
    return std::move(settings_);
  }

 private:
  void Put(const std::string& key, std::string_view path, std::string_view absent, std::string text) {
    settings_[key] = fields_.Retold(path, absent, std::move(text));
  }

  Status ReadFlavor() {
    if (Speaks(given_, "network")) {
      return Done{};
    }
    const ConfigValue name = fields_.Value("model.name", "llama3");
    const ConfigValue flavor = fields_.Value("model.flavor", "debugmodel");
    if (name.text == "llama3" && flavor.text == "debugmodel") {
      for (const auto& [key, text] : kDebugModel) {
        settings_[fmt::format("network.{}", key)] = Retold(flavor, std::string(text));
      }
      return Done{};
    }
    for (const auto& [known, ours] : kFlavors) {
      if (name.text == "llama3" && flavor.text == known) {
        settings_["network"] = Retold(flavor, std::string(ours));
        return Done{};
      }
    }
    return ErrorAt(
        flavor, "model.flavor",
        fmt::format("torchtitan's {} {} is code, and this version knows llama3 in the flavors debugmodel, 8B, "
                    "70B and 405B",
                    name.text, flavor.text),
        "name the network: --set network=llama-3-8b, or the path of its config.json");
  }

  Status ReadLayout() {
    settings_["sequence_length"] = fields_.Value("training.seq_len", "2048");
    settings_["layout.tp"] = fields_.Value("parallelism.tensor_parallel_degree", "1");
    settings_["layout.pp"] = fields_.Value("parallelism.pipeline_parallel_degree", "1");
    settings_["layout.cp"] = fields_.Value("parallelism.context_parallel_degree", "1");
    settings_["layout.ep"] = fields_.Value("parallelism.expert_parallel_degree", "1");
    TIDEMARK_ASSIGN(replicas_, fields_.Whole("parallelism.data_parallel_replicate_degree", 1));
    TIDEMARK_ASSIGN(const std::int64_t shards, fields_.Whole("parallelism.data_parallel_shard_degree", -1, -1));
    if (const ConfigValue* ranks = Find(given_, "layout.dp")) {
      TIDEMARK_ASSIGN(ranks_, (WholeNumber{1, 1 << 20}.Read(*ranks).At("layout.dp")));
      return Done{};
    }
    if (shards < 1) {
      return fields_.Refuse(
          "parallelism.data_parallel_shard_degree", "-1",
          "takes all ranks there are, and a config does not say how many",
          "add --set layout.dp=N: all ranks, divided by tensor_parallel_degree * pipeline_parallel_degree");
    }
    ranks_ = replicas_ * shards;
    Put("layout.dp", "parallelism.data_parallel_shard_degree", "-1", std::to_string(ranks_));
    return Done{};
  }

  /// global batch = local batch * accumulation * ranks; a pipeline cuts a local batch into microbatches (train.py).
  Status ReadBatch() {
    TIDEMARK_ASSIGN(const std::int64_t local, fields_.Whole("training.local_batch_size", 8));
    TIDEMARK_ASSIGN(const std::int64_t global, fields_.Whole("training.global_batch_size", -1, -1));
    std::int64_t steps = 1;
    if (global >= 0) {
      steps = global / (local * ranks_);
      if (steps < 1 || steps * local * ranks_ != global) {
        return fields_.Refuse(
            "training.global_batch_size", "-1",
            fmt::format("must be a multiple of local batch size times data-parallel degree: {} is none of {} * {}",
                        global, local, ranks_),
            "set another layout.dp, or the batch in the file");
      }
    }
    std::int64_t micro = local;
    if (Stages() != "1") {
      TIDEMARK_ASSIGN(micro, fields_.Whole("parallelism.pipeline_parallel_microbatch_size", 1));
      if (local % micro != 0) {
        return fields_.Refuse("training.local_batch_size", "8",
                              fmt::format("{} must be divisible by pipeline_parallel_microbatch_size {}", local, micro),
                              "change one of the two");
      }
      if (steps > 1 && !Speaks(given_, "accumulation_steps")) {
        return fields_.Refuse(
            "training.global_batch_size", "-1",
            fmt::format("is {} flushes of the pipeline, behind each of which torchtitan reduces gradients; "
                        "this version reduces them once a step",
                        steps),
            fmt::format("price one flush: --set accumulation_steps={}", local / micro));
      }
      Put("pipeline_microbatches", "training.local_batch_size", "8", std::to_string(local / micro));
      steps *= local / micro;
    }
    Put("micro_batch_size", "training.local_batch_size", "8", std::to_string(micro));
    Put("accumulation_steps", "training.global_batch_size", "-1", std::to_string(steps));
    return Done{};
  }

  std::string Stages() const {
    const ConfigValue* given = Find(given_, "layout.pp");
    return given == nullptr ? settings_.at("layout.pp").text : given->text;
  }

  /// The trainer never calls set_requires_gradient_sync; a pipeline's stages reduce behind their last backward pass.
  Status ReadStrategy() {
    const bool shards = ranks_ > replicas_;
    if (!shards && !Speaks(given_, "strategy")) {
      return fields_.Refuse(
          "parallelism.data_parallel_shard_degree", "-1",
          "nothing is sharded: torchtitan then trains in fp32 under autocast, which this version does not model",
          "shard over two ranks or more, or name what you want priced: --set strategy=ddp-every");
    }
    const bool pipeline = Stages() != "1";
    settings_["strategy"] = MakeScalar(pipeline ? "fsdp2-keep-all" : "fsdp2-scatter-each", "the config's format");
    if (replicas_ > 1) {
      Put("shard.replicas", "parallelism.data_parallel_replicate_degree", "1", std::to_string(replicas_));
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
    return Done{};
  }

  Status ReadPipeline() {
    TIDEMARK_ASSIGN(const std::int64_t ranks, (WholeNumber{1, 1 << 10}.Read(MakeScalar(Stages(), {}))));
    if (ranks == 1) {
      return Done{};
    }
    TIDEMARK_ASSIGN(const std::int64_t layers, Layers());
    return ReadTorchtitanPipeline(fields_, ranks, layers, settings_);
  }

  Result<std::int64_t> Layers() const {
    std::map<std::string, std::string> sources;
    const Settings& said = Speaks(given_, "network") ? given_ : settings_;
    TIDEMARK_ASSIGN(const Network network, ReadNetwork(said, {}, sources));
    const auto* decoder = std::get_if<Decoder>(&network.shape);
    return decoder == nullptr ? Result<std::int64_t>(BadInput("a pipeline is of a decoder's layers")) : decoder->layers;
  }

  Status ReadPrecision() {
    const Choice<std::string> types{{{"bfloat16", "bf16"}, {"float32", "fp32"}}};
    constexpr std::string_view kStored = "training.dtype", kComputed = "training.mixed_precision_param";
    TIDEMARK_ASSIGN(const std::string stored, fields_.OneOf(types, kStored, "float32"));
    TIDEMARK_ASSIGN(const std::string computed, fields_.OneOf(types, kComputed, "bfloat16"));
    Put("precision.params", kComputed, "bfloat16", computed);
    Put("precision.gradients", kComputed, "bfloat16", computed);
    for (const char* key : {"precision.accumulate", "precision.optimizer"}) {
      Put(key, kStored, "float32", stored);
    }
    Put("precision.master", kStored, "float32", stored == computed ? "none" : stored);
    Put("precision.reduce", "training.mixed_precision_reduce", "float32", "fp32");  // its only value
    return Done{};
  }

  Status ReadRecomputation() {
    constexpr std::string_view kMode = "activation_checkpoint.mode",
                               kOption = "activation_checkpoint.selective_ac_option";
    if (Speaks(given_, "recompute.policy")) {
      return Done{};
    }
    const Choice<std::string> modes{{{"none", "none"}, {"full", "full"}, {"selective", "every_n"}}, {"memory_budget"}};
    TIDEMARK_ASSIGN(std::string policy, fields_.OneOf(modes, kMode, "selective"));
    const ConfigValue option = fields_.Value(kOption, "2");
    if (policy == "every_n" && option.text == "op") {
      constexpr std::string_view kShapes = "activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns";
      const ConfigValue* shapes = fields_.Given(kShapes);
      for (const ConfigValue& name : shapes == nullptr ? std::vector<ConfigValue>() : shapes->items) {
        if (name.text != "moe.router.gate") {  // the default, which a dense network has not
          return ErrorAt(*shapes, kShapes,
                         "products that are done again by their shapes are not supported by this version",
                         "set it to [] to price what torchtitan's list keeps");
        }
      }
      settings_["recompute.policy"] = Retold(option, "per_op");
      return Done{};
    }
    if (policy == "every_n") {
      TIDEMARK_ASSIGN(const std::int64_t every,
                      (WholeNumber{1, 1 << 20}.Read(option).At(fmt::format("{}: {}", option.where, kOption))));
      policy = every == 1 ? "full" : policy;
      Put("recompute.every", kOption, "2", std::to_string(std::max<std::int64_t>(every, 2)));
    }
    Put("recompute.policy", kMode, "selective", policy);
    return Done{};
  }

  Status ReadOptimizer() {
    constexpr std::string_view kName = "optimizer.name", kEarly = "optimizer.early_step_in_backward";
    const Choice<std::string> names{{{"AdamW", "adamw"}, {"Adam", "adamw"}}};
    TIDEMARK_ASSIGN(std::string name, fields_.OneOf(names, kName, "AdamW"));
    Put("optimizer", kName, "AdamW", std::move(name));
    settings_["optimizer_step.kernel"] = fields_.Value("optimizer.implementation", "fused");
    TIDEMARK_ASSIGN(const bool early, fields_.IsTrue(kEarly));
    if (early) {
      settings_["optimizer_step.in_backward"] = fields_.Value(kEarly, "false");
    } else {
      settings_["optimizer_step.clip_norm"] = fields_.Value("training.max_norm", "1.0");
    }
    return Done{};
  }

  /// What torch.compile fuses, eager code does in single operations; it also drops what nobody reads.
  Status ReadKernels() {
    TIDEMARK_ASSIGN(const bool compiled, fields_.IsTrue("compile.enable"));
    for (const char* key : {"buffers.fused_glu", "buffers.fused_rope", "recompute.needed_only"}) {
      Put(key, "compile.enable", "false", compiled ? "true" : "false");
    }
    const ConfigValue* policy = Find(settings_, "recompute.policy");
    if (policy != nullptr && policy->text == "none") {
      settings_.erase("recompute.needed_only");
    }
    const ConfigValue* converters = fields_.Given("model.converters");
    if (converters != nullptr && !converters->items.empty()) {
      return ErrorAt(*converters, "model.converters",
                     fmt::format("{} is not supported by this version: it has no fp8", converters->items[0].text),
                     "set it to [] to price bf16");
    }
    return Done{};
  }

  TorchtitanFields fields_;
  const Settings& given_;
  Settings settings_;
  std::int64_t replicas_ = 1, ranks_ = 1;
};

/// A network by name and flavor, or two of the sections that nobody else's TOML has.
bool Recognises(const ConfigValue& root) {
  const auto is_section = [&](const char* name) {
    const ConfigValue* found = root.Find(name);
    return found != nullptr && found->is_map();
  };
  return is_section("training") && (is_section("parallelism") || is_section("activation_checkpoint")) &&
         root.FindPath("model.model_config") == nullptr;
}

Result<Settings> Read(const ConfigValue& root, const Settings& given) {
  TIDEMARK_TRY(RefuseMisspelt(root, kSections, KnownFields()));
  TIDEMARK_TRY(RefuseOthers(root, kOneValue));
  return Titan(root, given).Read();
}

}  // namespace

ConfigFormat ConfigTorchtitan() {
  return {
      "torchtitan",
      "torchtitan's job config (TOML, until February 2026), Llama 3; layout.dp comes from --set where ranks are not "
      "counted, and it names no machine: h100-sxm-80gb is assumed",
      &Recognises, &Read};
}

}  // namespace tidemark
