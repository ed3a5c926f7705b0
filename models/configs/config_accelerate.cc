// SPDX-License-Identifier: Apache-2.0
#include "models/configs/config_accelerate.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "models/configs/config.h"
#include "models/configs/config_deepspeed.h"
#include "models/configs/field.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

// accelerate at 16cb6eb8 (July 2026): commands/config/config_args.py (ClusterConfig), utils/dataclasses.py
// (FullyShardedDataParallelPlugin), utils/fsdp_utils.py (fsdp2_prepare_model), accelerator.py (prepare_model, no_sync).
// Batch and accumulation are not in the file but in the script that it launches. What is not named here touches neither
// memory nor time.

constexpr std::string_view kCompiled = "kernels that torch.compile fuses";
constexpr std::string_view kCompiledHint =
    "set it to 'NO' to price eager code; compiling changes buffers.fused_glu, buffers.fused_rope and "
    "recompute.needed_only here";

constexpr std::array kOneValue = {
    OneValue{"dynamo_backend", "no", kCompiled, kCompiledHint},
    OneValue{"dynamo_config.dynamo_backend", "no", kCompiled, kCompiledHint},
    OneValue{"dynamo_config.backend", "no", kCompiled, kCompiledHint},
    OneValue{"fsdp_config.fsdp_forward_prefetch", "false", "gathers that are issued ahead in the forward pass"},
    OneValue{"fsdp_config.fsdp_auto_wrap_policy", "transformer_based_wrap", "FSDP units that are no layers",
             "set it to TRANSFORMER_BASED_WRAP"},
    OneValue{"parallelism_config.parallelism_config_cp_size", "1", kOtherContext,
             "leave it and num_processes out, and add --set layout.cp=N to price that ring instead"},
    OneValue{"parallelism_config.parallelism_config_sp_size", "1", "Ulysses sequence parallelism"},
};

constexpr std::string_view kType = "distributed_type";
constexpr std::string_view kNone = "NO";  ///< of kType, and accelerate's default

constexpr std::string_view kOther[] = {kType,
                                       "mixed_precision",
                                       "num_processes",
                                       "num_machines",
                                       "deepspeed_config",
                                       "deepspeed_config.zero_stage",
                                       "deepspeed_config.gradient_accumulation_steps",
                                       "deepspeed_config.gradient_clipping",
                                       "deepspeed_config.offload_optimizer_device",
                                       "deepspeed_config.offload_param_device",
                                       "deepspeed_config.deepspeed_config_file",
                                       "fsdp_config",
                                       "fsdp_config.fsdp_version",
                                       "fsdp_config.fsdp_sharding_strategy",
                                       "fsdp_config.fsdp_reshard_after_forward",
                                       "fsdp_config.fsdp_backward_prefetch",
                                       "fsdp_config.fsdp_activation_checkpointing",
                                       "fsdp_config.fsdp_offload_params",
                                       "parallelism_config",
                                       "parallelism_config.parallelism_config_dp_replicate_size",
                                       "parallelism_config.parallelism_config_dp_shard_size",
                                       "parallelism_config.parallelism_config_tp_size",
                                       "parallelism_config.parallelism_config_cp_size"};

constexpr std::string_view kSections[] = {"", "deepspeed_config", "fsdp_config", "parallelism_config"};

constexpr std::string_view kOfFsdp[] = {"fsdp_state_dict_type",
                                        "fsdp_sync_module_states",
                                        "fsdp_cpu_ram_efficient_loading",
                                        "fsdp_use_orig_params",
                                        "fsdp_transformer_layer_cls_to_wrap",
                                        "fsdp_min_num_params"};
constexpr std::string_view kOfParallelism[] = {"parallelism_config_cp_comm_strategy", "parallelism_config_cp_backend",
                                               "parallelism_config_sp_backend"};
constexpr std::string_view kOfDeepSpeed[] = {"zero3_init_flag",
                                             "zero3_save_16bit_model",
                                             "offload_optimizer_nvme_path",
                                             "offload_param_nvme_path",
                                             "deepspeed_hostfile",
                                             "deepspeed_inclusion_filter",
                                             "deepspeed_exclusion_filter",
                                             "deepspeed_multinode_launcher",
                                             "deepspeed_moe_layer_cls_names"};
constexpr std::array kClosed = {ClosedSection{"deepspeed_config", kOfDeepSpeed}, ClosedSection{"fsdp_config", kOfFsdp},
                                ClosedSection{"parallelism_config", kOfParallelism}};

Status CheckAccelerateFields(const ConfigValue& root) {
  return CheckFields(root, {kSections, kClosed, kOneValue, {}, kOther});
}

ConfigValue Default(std::string text) { return MakeScalar(std::move(text), "accelerate's default"); }

/// The field, or accelerate's default.
ConfigValue Value(const ConfigValue& root, std::string_view path, std::string_view absent) {
  const ConfigValue* value = Given(root, path);
  ConfigValue fallback = Default(std::string(absent));
  fallback.where = root.where;
  return value == nullptr ? fallback : *value;
}

template <class Form>
auto Read(const ConfigValue& root, const Form& form, std::string_view path, std::string_view absent) {
  const ConfigValue value = Value(root, path, absent);
  return form.Read(value).At(fmt::format("{}: {}", value.where, path));
}

/// One of a few names, which accelerate takes in any case, or the number that it has in their list, from 1 on.
Result<std::string> ReadName(const ConfigValue& root, std::string_view path, std::string_view absent,
                             const std::vector<std::string>& names) {
  ConfigValue value = Value(root, path, absent);
  std::transform(value.text.begin(), value.text.end(), value.text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (value.text == names[i] || value.text == std::to_string(i + 1)) {
      return names[i];
    }
  }
  Error error = NotAChoice(value, names, {});
  error.where = fmt::format("{}: {}", value.where, path);
  return error;
}

/// Ranks by axis. Without a section for them all processes are data-parallel.
Status ReadLayout(const ConfigValue& root, Settings& settings) {
  const WholeNumber ranks{1, 1 << 20};
  if (Given(root, "parallelism_config") == nullptr) {
    TIDEMARK_ASSIGN(const std::int64_t processes, Read(root, WholeNumber{-1, 1 << 20}, "num_processes", "-1"));
    if (processes > 0) {
      settings["layout.dp"] = *Given(root, "num_processes");
    }
    return Done{};
  }
  constexpr std::string_view kReplicas = "parallelism_config.parallelism_config_dp_replicate_size";
  constexpr std::string_view kShards = "parallelism_config.parallelism_config_dp_shard_size";
  constexpr std::string_view kTensor = "parallelism_config.parallelism_config_tp_size";
  TIDEMARK_ASSIGN(const std::int64_t replicas, Read(root, ranks, kReplicas, "1"));
  TIDEMARK_ASSIGN(const std::int64_t shards, Read(root, ranks, kShards, "1"));
  settings["layout.dp"] = Retold(Value(root, kShards, "1"), std::to_string(replicas * shards));
  settings["layout.tp"] = Value(root, kTensor, "1");
  if (replicas > 1) {
    settings["shard.replicas"] = Value(root, kReplicas, "1");
  }
  TIDEMARK_ASSIGN(const std::int64_t tensor, Read(root, ranks, kTensor, "1"));
  TIDEMARK_ASSIGN(const std::int64_t processes, Read(root, WholeNumber{-1, 1 << 20}, "num_processes", "-1"));
  if (const std::int64_t all = replicas * shards; processes > 0 && all * tensor != processes) {
    return ErrorAt(*Given(root, "num_processes"), "num_processes",
                   fmt::format("{} is not the product of parallelism_config's sizes: {} * {} * {}", processes, replicas,
                               shards, tensor),
                   "change one of them");
  }
  return Done{};
}

Result<std::string> ReadMixed(const ConfigValue& root) {
  const Choice<std::string> choice{{{"bf16", "bf16"}, {"fp16", "fp16"}, {"no", "no"}}, {"fp8"}};
  return Read(root, choice, "mixed_precision", "no");
}

/// Without mixed precision everything has the dtype that the model was loaded in, which no config says.
Status ReadLoadedType(const ConfigValue& root, const Settings& given, Settings& settings) {
  if (!Speaks(given, "precision.params")) {
    return ErrorAt(
        Value(root, "mixed_precision", "no"), "mixed_precision",
        "leaves open in which dtype the model was loaded, and it trains in that",
        "add --set precision.params=bf16, or fp32 where nothing is mixed (DDP's autocast over fp32 weights is not "
        "modelled)");
  }
  TIDEMARK_ASSIGN(const std::string mixed, ReadMixed(root));
  if (mixed != "no" && given.at("precision.params").text == "fp32") {
    return ErrorAt(
        Value(root, "mixed_precision", "no"), "mixed_precision",
        fmt::format("'{}' over fp32 weights is autocast under DDP, which is not supported by this version", mixed),
        "set it to 'no' to price fp32, or --set precision.params=bf16");
  }
  for (const char* key : {"precision.gradients", "precision.reduce", "precision.accumulate", "precision.optimizer"}) {
    settings[key] = given.at("precision.params");
  }
  settings["precision.master"] = Default("none");
  return Done{};
}

/// FSDP shards fp32 weights, whatever the model was loaded in, and computes and reduces in the dtype of
/// mixed_precision; FSDP2 adds deferred gradients up in the dtype that it reduces.
Status ReadMixedPrecision(const ConfigValue& root, const Settings& given, Settings& settings) {
  TIDEMARK_ASSIGN(const std::string dtype, ReadMixed(root));
  if (dtype == "no") {
    return ReadLoadedType(root, given, settings);
  }
  for (const char* key : {"precision.params", "precision.gradients", "precision.reduce", "precision.accumulate"}) {
    settings[key] = Retold(Value(root, "mixed_precision", "no"), dtype);
  }
  for (const char* key : {"precision.master", "precision.optimizer"}) {
    settings[key] = Default("fp32");
  }
  return Done{};
}

constexpr std::string_view kOffload = "fsdp_config.fsdp_offload_params";

/// accelerate enters no_sync for microbatches that do not step.
Status ReadFsdp1(const ConfigValue& root, Settings& settings) {
  const std::vector<std::string> kinds = {"FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD",
                                          "HYBRID_SHARD_ZERO2"};
  TIDEMARK_ASSIGN(const bool offloads, Read(root, Truth{}, kOffload, "false"));
  if (offloads) {
    return ErrorAt(Value(root, kOffload, "false"), kOffload,
                   "'true' is not supported by this version with fsdp_version 1: FSDP1's CPUOffload",
                   "set the version to 2, whose CPUOffloadPolicy is, or leave parameters on the GPU");
  }
  const bool old = Given(root, "fsdp_config.fsdp_sharding_strategy") != nullptr;
  const std::string_view path = old ? "fsdp_config.fsdp_sharding_strategy" : "fsdp_config.fsdp_reshard_after_forward";
  TIDEMARK_ASSIGN(const std::string kind, ReadName(root, path, "FULL_SHARD", kinds));
  const ConfigValue said = Value(root, path, "FULL_SHARD");
  if (kind == "NO_SHARD") {
    return ErrorAt(said, path, "'NO_SHARD' is not supported by this version: FSDP without shards",
                   "set it to FULL_SHARD, or price DDP: --set strategy=ddp-last");
  }
  if (kind == "SHARD_GRAD_OP" || kind == "HYBRID_SHARD_ZERO2") {
    settings["shard.reshard_after_forward"] = Retold(said, "false");
  }
  if (kind.starts_with("HYBRID")) {
    settings["shard.replicas"] = Value(root, "num_machines", "1");
  }
  constexpr std::string_view kPrefetch = "fsdp_config.fsdp_backward_prefetch";
  const std::vector<std::string> prefetches = {"BACKWARD_PRE", "BACKWARD_POST", "NO_PREFETCH"};
  TIDEMARK_ASSIGN(const std::string prefetch, ReadName(root, kPrefetch, "NO_PREFETCH", prefetches));
  settings["shard.backward_prefetch"] =
      Retold(Value(root, kPrefetch, "NO_PREFETCH"), prefetch == "BACKWARD_PRE"    ? "pre"
                                                    : prefetch == "BACKWARD_POST" ? "post"
                                                                                  : "none");
  return Done{};
}

Status ReadShards(const ConfigValue& root, Settings& settings) {
  constexpr std::string_view kVersion = "fsdp_config.fsdp_version";
  constexpr std::string_view kCheckpointing = "fsdp_config.fsdp_activation_checkpointing";
  if (Given(root, "fsdp_config.fsdp_auto_wrap_policy") == nullptr) {
    return ErrorAt(root, "fsdp_config.fsdp_auto_wrap_policy",
                   "is missing, and without it the whole model is one unit, which is not supported by this version",
                   "set it to TRANSFORMER_BASED_WRAP");
  }
  TIDEMARK_ASSIGN(const std::int64_t version, Read(root, WholeNumber{1, 2}, kVersion, "1"));
  settings["strategy"] = Retold(Value(root, kVersion, "1"), version == 1 ? "fsdp1-no-sync" : "fsdp2-defer");
  TIDEMARK_ASSIGN(const bool again, Read(root, Truth{}, kCheckpointing, "false"));
  if (again) {
    settings["recompute.policy"] = Retold(Value(root, kCheckpointing, "false"), "full");
  }
  if (version == 1) {
    if (const ConfigValue* mesh = Given(root, "parallelism_config")) {
      return ErrorAt(*mesh, "parallelism_config", "accelerate takes it with fsdp_version: 2 only",
                     "set fsdp_config.fsdp_version to 2, or remove the section");
    }
    return ReadFsdp1(root, settings);
  }
  constexpr std::string_view kReshard = "fsdp_config.fsdp_reshard_after_forward";
  TIDEMARK_ASSIGN(const bool reshard, Read(root, Truth{}, kReshard, "true"));
  settings["shard.reshard_after_forward"] = Retold(Value(root, kReshard, "true"), reshard ? "true" : "false");
  TIDEMARK_ASSIGN(const bool offloads, Read(root, Truth{}, kOffload, "false"));
  if (offloads) {
    settings["optimizer_step.offload"] = Retold(Value(root, kOffload, "false"), "true");
  }
  return Done{};
}

/// A section of DeepSpeed's config with one field.
ConfigValue SectionOf(const std::string& key, const ConfigValue& value) {
  ConfigValue section = MapAt(value);
  section.fields.push_back({key, value});
  return section;
}

/// DeepSpeed's config as accelerate makes it of its own (DeepSpeedPlugin.__post_init__ and set_mixed_precision).
ConfigValue DeepSpeedOf(const ConfigValue& root) {
  ConfigValue zero = SectionOf("stage", Value(root, "deepspeed_config.zero_stage", "2"));
  ConfigValue config = MapAt(root);
  for (const char* part : {"offload_optimizer", "offload_param"}) {
    if (const ConfigValue* device = Given(root, fmt::format("deepspeed_config.{}_device", part))) {
      zero.fields.push_back({part, SectionOf("device", *device)});
    }
  }
  config.fields.push_back({"zero_optimization", std::move(zero)});
  for (const char* field : {"gradient_accumulation_steps", "gradient_clipping"}) {
    if (const ConfigValue* value = Given(root, fmt::format("deepspeed_config.{}", field))) {
      config.fields.push_back({field, *value});
    }
  }
  config.fields.push_back({"train_micro_batch_size_per_gpu", Retold(root, "auto")});
  const ConfigValue mixed = Value(root, "mixed_precision", "no");
  if (mixed.text == "bf16" || mixed.text == "fp16") {
    config.fields.push_back({mixed.text, SectionOf("enabled", Retold(mixed, "true"))});
  }
  return config;
}

// What distributed_type asks for.

Result<Settings> ReadFsdp(const ConfigValue& root, const Settings& given) {
  Settings settings;
  TIDEMARK_TRY(ReadLayout(root, settings));
  TIDEMARK_TRY(RefuseUnsaid(root, "accelerate", kSaidByScripts, settings, given));
  TIDEMARK_ASSIGN(Settings shards, ReadFsdpPlugin(root, given));
  shards.merge(settings);
  return shards;
}

Result<Settings> ReadUnsharded(const ConfigValue& root, const Settings& given, Settings ranks) {
  TIDEMARK_TRY(RefuseUnsaid(root, "accelerate", kSaidByScripts, ranks, given));
  ranks["strategy"] = Retold(Value(root, kType, kNone), "ddp-last");
  TIDEMARK_TRY(ReadLoadedType(root, given, ranks));
  return ranks;
}

Result<Settings> ReadDdp(const ConfigValue& root, const Settings& given) {
  Settings ranks;
  TIDEMARK_TRY(ReadLayout(root, ranks));
  return ReadUnsharded(root, given, std::move(ranks));
}

/// One process, whatever num_processes says (launch.py, simple_launcher).
Result<Settings> ReadOneProcess(const ConfigValue& root, const Settings& given) {
  Settings ranks;
  TIDEMARK_TRY(ReadLayout(root, ranks));
  ranks["layout.dp"] = Retold(Value(root, kType, kNone), "1");
  return ReadUnsharded(root, given, std::move(ranks));
}

Result<Settings> ReadLaunchedDeepSpeed(const ConfigValue& root, const Settings& given) {
  if (const ConfigValue* file = Given(root, "deepspeed_config.deepspeed_config_file")) {
    return ErrorAt(*file, "deepspeed_config.deepspeed_config_file", "what counts is in that file",
                   fmt::format("tidemark predict {}, with what is set here", file->text));
  }
  TIDEMARK_TRY(ReadMixed(root));
  TIDEMARK_ASSIGN(const std::int64_t processes, Read(root, WholeNumber{-1, 1 << 20}, "num_processes", "-1"));
  Settings known = given;
  if (processes > 0 && !Speaks(given, "layout.dp")) {
    known["layout.dp"] = *Given(root, "num_processes");
  }
  return ReadDeepSpeed(DeepSpeedOf(root), known);
}

bool Recognises(const ConfigValue& root) {
  const auto others = {"mixed_precision", "num_processes", "fsdp_config", "deepspeed_config", "compute_environment"};
  return root.Find("distributed_type") != nullptr &&
         std::ranges::any_of(others, [&](const char* key) { return root.Find(key) != nullptr; });
}

Result<Settings> ReadAccelerate(const ConfigValue& root, const Settings& given) {
  TIDEMARK_TRY(CheckAccelerateFields(root));
  struct Type {
    Result<Settings> (*read)(const ConfigValue& root, const Settings& given);
  };
  const Choice<Type> types{{{"FSDP", {&ReadFsdp}},
                            {"MULTI_GPU", {&ReadDdp}},
                            {"NO", {&ReadOneProcess}},
                            {"DEEPSPEED", {&ReadLaunchedDeepSpeed}}},
                           {"MEGATRON_LM", "TP", "XLA", "MULTI_CPU", "MULTI_NPU", "MULTI_XPU"}};
  TIDEMARK_ASSIGN(const Type type, Read(root, types, kType, kNone));
  TIDEMARK_ASSIGN(Settings settings, type.read(root, given));
  settings["machine"] = AssumedMachine();
  return settings;
}

}  // namespace

Result<Settings> ReadFsdpPlugin(const ConfigValue& root, const Settings& given) {
  TIDEMARK_TRY(CheckAccelerateFields(root));
  Settings settings;
  TIDEMARK_TRY(ReadMixedPrecision(root, given, settings));
  TIDEMARK_TRY(ReadShards(root, settings));
  return settings;
}

ConfigFormat ConfigAccelerate() {
  return {"accelerate",
          "accelerate's config (YAML): FSDP1, FSDP2, DDP or DeepSpeed, ranks, dtypes; network, sequence_length, "
          "micro_batch_size and accumulation_steps come from --set",
          &Recognises, &ReadAccelerate};
}

}  // namespace tidemark
