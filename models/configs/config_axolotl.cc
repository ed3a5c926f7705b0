// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "models/configs/config.h"
#include "models/configs/config_transformers.h"
#include "models/configs/field.h"
#include "models/configs/transformers_fields.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

// axolotl at 067b021c (July 2026): utils/schemas/ (fields, defaults), core/builders/base.py (the TrainingArguments that
// it makes of them), loaders/model.py (dtypes), integrations/liger/. Most of its fields touch neither memory nor time.

constexpr std::string_view kAdapters = "adapters beside frozen weights (LoRA and its kin)";
constexpr std::string_view kQuantized = "quantized weights";
constexpr std::string_view kOffloaded = "activations in host memory";
constexpr std::string_view kAxes = "ranks by axis: their fields are not translated";
constexpr std::string_view kRewarded = "training on preferences or rewards";
constexpr std::string_view kRemoveIt = "remove it to price the job without";
constexpr std::string_view kOtherLoss = "another loss; --set loss says one (tidemark list losses)";

constexpr std::array kOneValue = {
    OneValue{"adapter", "", kAdapters, kRemoveIt},
    OneValue{"relora", "false", kAdapters},
    OneValue{"load_in_8bit", "false", kQuantized},
    OneValue{"load_in_4bit", "false", kQuantized},
    OneValue{"gptq", "false", kQuantized},
    OneValue{"qat", "", "training that imitates quantized weights", kRemoveIt},
    OneValue{"fp8", "false", "products in fp8"},
    OneValue{"rl", "", kRewarded, kRemoveIt},
    OneValue{"reward_model", "false", kRewarded},
    OneValue{"process_reward_model", "false", kRewarded},
    OneValue{"unfrozen_parameters", "", "patterns of names of transformers",
             "remove it, and say which weights are trained: --set network.trainable"},
    OneValue{"lisa_n_layers", "", "training of some layers at a time", kRemoveIt},
    OneValue{"diffusion", "", "diffusion over tokens", kRemoveIt},
    OneValue{"selective_checkpointing", "false", "activations that are kept by the names of operators"},
    OneValue{"activation_offloading", "false", kOffloaded},
    OneValue{"layer_offloading", "false", kOffloaded},
    OneValue{"dp_shard_size", "1", kAxes, kRemoveIt},
    OneValue{"dp_replicate_size", "1", kAxes, kRemoveIt},
    OneValue{"tensor_parallel_size", "1", kAxes, kRemoveIt},
    OneValue{"context_parallel_size", "1", kAxes, kRemoveIt},
    OneValue{"sequence_parallel_degree", "1", kAxes, kRemoveIt},
    OneValue{"expert_parallel_size", "1", kAxes, kRemoveIt},
    OneValue{"tiled_mlp", "false", "feed-forward parts in pieces"},
    OneValue{"unsloth_cross_entropy_loss", "false", "Unsloth's kernels"},
    OneValue{"chunked_cross_entropy", "false", kOtherLoss},
    OneValue{"cut_cross_entropy", "false", kOtherLoss},
    OneValue{"use_eaft", "false", kOtherLoss},
    OneValue{"overrides_of_model_config", "", "a network that differs from that of its name",
             "remove it, and say what differs: --set network.layers=16, for instance"},
    OneValue{"liger_swiglu", "", "an older name of liger_glu_activation", "say that instead"},
    OneValue{"deepcompile", "false", "DeepCompile"},
    OneValue{"batch_size", "", "a batch of all ranks",
             "remove it: micro_batch_size and gradient_accumulation_steps say it"},
};

/// A field that TrainingArguments call otherwise, or that the reader of those knows by that name.
struct Renamed {
  std::string_view theirs, arguments;
};

constexpr std::array kRenamed = {
    Renamed{"base_model", "model_name_or_path"},
    Renamed{"sequence_len", "max_length"},
    Renamed{"micro_batch_size", "per_device_train_batch_size"},
    Renamed{"optimizer", "optim"},
    Renamed{"gradient_accumulation_steps", "gradient_accumulation_steps"},
    Renamed{"max_grad_norm", "max_grad_norm"},
    Renamed{"gradient_checkpointing", "gradient_checkpointing"},
    Renamed{"attn_implementation", "attn_implementation"},
    Renamed{"optim_target_modules", "optim_target_modules"},
    Renamed{"auto_find_batch_size", "auto_find_batch_size"},
    Renamed{"accelerator_config", "accelerator_config"},
    Renamed{"deepspeed", "deepspeed"},
    Renamed{"ddp_bucket_cap_mb", "ddp_bucket_cap_mb"},
    Renamed{"ddp_find_unused_parameters", "ddp_find_unused_parameters"},
    Renamed{"torch_compile", "torch_compile"},
    Renamed{"torch_compile_backend", "torch_compile_backend"},
    Renamed{"torch_compile_mode", "torch_compile_mode"},
};

/// Read by name, beside those of the tables.
constexpr std::string_view kOther[] = {"flash_attention",
                                       "flex_attention",
                                       "bf16",
                                       "fp16",
                                       "bfloat16",
                                       "float16",
                                       "fsdp",
                                       "fsdp_config",
                                       "fsdp_version",
                                       "plugins",
                                       "liger_rope",
                                       "liger_swiglu",
                                       "eager_attention",
                                       "liger_rms_norm",
                                       "liger_glu_activation",
                                       "liger_cross_entropy",
                                       "liger_fused_linear_cross_entropy"};

constexpr std::string_view kTop[] = {""};

class Axolotl {
 public:
  explicit Axolotl(const ConfigValue& root) : root_(root), arguments_(MapAt(root)) {}

  /// The TrainingArguments that axolotl makes of its file.
  Result<ConfigValue> Translate() {
    std::vector<std::string_view> known(std::begin(kOther), std::end(kOther));
    std::ranges::transform(kRenamed, std::back_inserter(known), &Renamed::theirs);
    TIDEMARK_TRY(CheckFields(root_, {kTop, {}, kOneValue, {}, known}));
    for (const Renamed& field : kRenamed) {
      if (const ConfigValue* value = Given(root_, field.theirs)) {
        Put(field.arguments, *value);
      }
    }
    if (Given(root_, "micro_batch_size") == nullptr) {
      Put("per_device_train_batch_size", Default("1"));
    }
    TIDEMARK_TRY(CheckRecomputation());
    TIDEMARK_TRY(TranslateTypes());
    TIDEMARK_TRY(TranslateShards());
    TIDEMARK_TRY(RefusePlugins());
    TIDEMARK_TRY(TranslateKernels());
    return arguments_;
  }

 private:
  void Put(std::string_view key, const ConfigValue& value) { arguments_.fields.push_back({std::string(key), value}); }

  ConfigValue Default(std::string text) const {
    ConfigValue value = MakeScalar(std::move(text), "axolotl's default");
    value.where = root_.where;
    return value;
  }

  /// gradient_checkpointing is true, false or where activations go instead.
  Status CheckRecomputation() const {
    const ConfigValue* again = Given(root_, "gradient_checkpointing");
    if (again != nullptr && (again->text.starts_with("offload") || again->text == "unsloth")) {
      return ErrorAt(*again, "gradient_checkpointing",
                     fmt::format("{} is not supported by this version: {}", Describe(*again), kOffloaded),
                     "set it to true to price activations that are computed again and stay on the GPU");
    }
    return Done{};
  }

  /// "auto" is bf16's default, unless fp16 is asked for (resolve_dtype), and bf16 where the GPU has it, as all modelled
  /// ones do.
  Status TranslateTypes() {
    const ConfigValue* fp16 = Given(root_, "fp16");
    const bool other = fp16 != nullptr && LowerCase(fp16->text) == "true";
    if (root_.Find("bf16") == nullptr) {  // an empty one is false
      Put("bf16", Default(other ? "false" : "true"));
    }
    const Choice<std::string> halves{{{"true", "true"}, {"false", "false"}, {"auto", other ? "false" : "true"}},
                                     {"full"}};
    for (const auto& [theirs, arguments] : {std::pair("bf16", "bf16"), std::pair("bfloat16", "bf16"),
                                            std::pair("fp16", "fp16"), std::pair("float16", "fp16")}) {
      const ConfigValue* value = Given(root_, theirs);
      if (value == nullptr || arguments_.Find(arguments) != nullptr) {
        continue;
      }
      TIDEMARK_ASSIGN(const std::string on, halves.Read(*value).At(fmt::format("{}: {}", value->where, theirs)));
      Put(arguments, Retold(*value, on));
    }
    return Done{};
  }

  /// Version 1 is axolotl's default, and its fsdp_config says how the model is wrapped.
  Status TranslateShards() {
    const ConfigValue* section = Given(root_, "fsdp_config");
    const ConfigValue* words = Given(root_, "fsdp");
    const ConfigValue* version = Given(root_, "fsdp_version");
    if (words != nullptr) {
      Put("fsdp", *words);
    } else if (section != nullptr) {
      Put("fsdp", Retold(*section, "full_shard"));
    }
    if (section == nullptr && version == nullptr) {
      return Done{};
    }
    ConfigValue fields = section == nullptr ? MapAt(*version) : *section;
    const auto pins = [](const ConfigValue::Entry& entry) { return entry.key.ends_with("cpu_offload_pin_memory"); };
    if (const auto pinned = std::ranges::find_if(fields.fields, pins); pinned != fields.fields.end()) {
      const std::string path = fmt::format("fsdp_config.{}", pinned->key);
      TIDEMARK_ASSIGN(const bool is_pinned,
                      (Truth{}.Read(pinned->value).At(fmt::format("{}: {}", pinned->value.where, path))));
      if (!is_pinned) {
        return ErrorAt(pinned->value, path,
                       "'false' is not supported by this version: shards in memory that is not pinned",
                       "set it to true");
      }
    }
    for (ConfigValue::Entry& entry : fields.fields) {  // handed to accelerate by its own name
      entry.key = entry.key.ends_with("offload_params") ? "cpu_offload" : entry.key;
    }
    std::erase_if(fields.fields, [&](const ConfigValue::Entry& entry) {
      return entry.key.ends_with("final_state_dict_type") || pins(entry) ||
             (version != nullptr && entry.key.ends_with("version"));
    });
    if (version != nullptr) {
      fields.fields.push_back({"fsdp_version", *version});
    }
    Put("fsdp_config", fields);
    return Done{};
  }

  /// A plugin's loss is on by itself (CutCrossEntropyArgs); what others do is not known.
  Status RefusePlugins() const {
    const ConfigValue* plugins = Given(root_, "plugins");
    const ConfigValue* cut = Given(root_, "cut_cross_entropy");
    for (const ConfigValue& plugin : plugins == nullptr ? std::vector<ConfigValue>() : plugins->items) {
      const bool is_cut = plugin.text.find("CutCrossEntropy") != std::string::npos;
      const bool is_off = is_cut && cut != nullptr && LowerCase(cut->text) == "false";
      if (plugin.text.find("liger") == std::string::npos && !is_off) {
        return ErrorAt(
            plugin, "plugins",
            fmt::format("{} is not supported by this version: {}", Describe(plugin),
                        is_cut ? kOtherLoss : "what it does to memory and time is not known"),
            is_cut ? "set cut_cross_entropy to false to price the usual loss" : "remove it to price the job without");
      }
    }
    return Done{};
  }

  /// Liger's kernels are a plugin, and each is asked for.
  Status TranslateKernels() {
    for (const auto& [path, kernel] :
         {std::pair("eager_attention", "eager"), std::pair("flash_attention", "flash_attention_2"),
          std::pair("flex_attention", "flex_attention")}) {
      const ConfigValue* wanted = Given(root_, path);
      if (wanted == nullptr) {
        continue;
      }
      TIDEMARK_ASSIGN(const bool on, Truth{}.Read(*wanted).At(fmt::format("{}: {}", wanted->where, path)));
      if (on) {
        Put("attn_implementation", Retold(*wanted, kernel));
      }
    }
    const ConfigValue* plugins = Given(root_, "plugins");
    const auto is_liger = [](const ConfigValue& one) { return one.text.find("liger") != std::string::npos; };
    if (plugins == nullptr || std::ranges::none_of(plugins->items, is_liger)) {
      return Done{};
    }
    Put("use_liger_kernel", Retold(*plugins, "true"));
    ConfigValue kernels = MapAt(*plugins);
    for (const auto& [kernel, field] :
         {std::pair("rope", "liger_rope"), std::pair("rms_norm", "liger_rms_norm"),
          std::pair("swiglu", "liger_glu_activation"), std::pair("cross_entropy", "liger_cross_entropy"),
          std::pair("fused_linear_cross_entropy", "liger_fused_linear_cross_entropy")}) {
      const ConfigValue* on = Given(root_, field);
      kernels.fields.push_back({kernel, on == nullptr ? Retold(*plugins, "false") : *on});
    }
    Put("liger_kernel_config", kernels);
    return Done{};
  }

  const ConfigValue& root_;
  ConfigValue arguments_;
};

bool Recognises(const ConfigValue& root) {
  const auto has = [&](const char* key) { return root.Find(key) != nullptr; };
  return has("base_model") && (has("micro_batch_size") || has("sequence_len") || has("datasets")) && !has("network") &&
         !has("machine");
}

Result<Settings> Read(const ConfigValue& root, const Settings& given) {
  TIDEMARK_ASSIGN(const ConfigValue arguments, Axolotl(root).Translate());
  return ReadTrainingArguments(arguments, Recipe::axolotl, given);
}

}  // namespace

ConfigFormat ConfigAxolotl() {
  return {
      "axolotl",
      "axolotl's config (YAML) of training all weights: batch, length, recomputation, optimizer, FSDP or DeepSpeed; "
      "layout.dp and models that the zoo has not come from --set",
      &Recognises,
      &Read,
      false,
      KeysOfTransformersCode()};
}

}  // namespace tidemark
