// SPDX-License-Identifier: Apache-2.0
#include "models/configs/transformers_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/text.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

// transformers at 00349ae8 (2026): hf_argparser.py; accelerate at 16cb6eb8 (July 2026): commands/launch.py; PyTorch's
// torchrun and DeepSpeed's launcher.

/// Fields that are true by themselves in a program that reads them, and may be turned off by "no_" in front.
constexpr std::string_view kOnByThemselves[] = {"gradient_checkpointing", "fused_optimizer", "bf16"};

/// Fields whose sections are read, or checked.
constexpr std::string_view kJson[] = {"accelerator_config", "fsdp_config", "gradient_checkpointing_kwargs",
                                      "liger_kernel_config", "model_init_kwargs"};

constexpr std::string_view kStage = "zero_stage";
constexpr std::string_view kFsdp = "the launcher's FSDP";
constexpr std::string_view kDeepSpeed = "the launcher's DeepSpeed";
constexpr std::string_view kHost = "parameters and optimizer in host memory";
constexpr std::string_view kSayFsdp =
    "add the system that it chooses: --set strategy=fsdp2-defer (or fsdp1-no-sync for fsdp_version 1)";
constexpr std::string_view kSayFile =
    "add the system that the file chooses: --set strategy=deepspeed-zero3 or fsdp2-defer, for instance";

/// A word that chooses the system, which only a strategy can say here. Of several the first that stands here is named.
struct Chooses {
  std::string_view field, what, hint;
};

constexpr std::array kChoose = {
    Chooses{"deepspeed_config_file", kDeepSpeed,
            "write --deepspeed FILE, which reads it, or add its system: --set strategy=deepspeed-zero3"},
    Chooses{"config_file", "a config of the launcher's", kSayFile},
    Chooses{"use_deepspeed", kDeepSpeed, {}},
    Chooses{kStage, kDeepSpeed, {}},
    Chooses{"zero3_init_flag", kDeepSpeed, {}},
    Chooses{"offload_optimizer_device", kDeepSpeed, {}},
    Chooses{"use_fsdp", kFsdp, kSayFsdp},
    Chooses{"fsdp_version", kFsdp, kSayFsdp},
    Chooses{"fsdp_sharding_strategy", kFsdp, kSayFsdp},
    Chooses{"fsdp_reshard_after_forward", kFsdp, kSayFsdp},
    Chooses{"fsdp_backward_prefetch", kFsdp, kSayFsdp},
    Chooses{"fsdp_activation_checkpointing", kFsdp, kSayFsdp},
    Chooses{"fsdp_auto_wrap_policy", kFsdp, kSayFsdp},
    Chooses{"fsdp_state_dict_type", kFsdp, kSayFsdp},
    Chooses{"fsdp_use_orig_params", kFsdp, kSayFsdp},
    Chooses{"fsdp_sync_module_states", kFsdp, kSayFsdp},
    Chooses{"fsdp_cpu_ram_efficient_loading", kFsdp, kSayFsdp},
    Chooses{"fsdp_offload_params", kFsdp, kSayFsdp},
};

/// What a strategy does not say of a launcher's system, and the key that says it.
struct Besides {
  OneValue field;
  std::string_view key;
};

constexpr std::array kBesides = {
    Besides{{"fsdp_sharding_strategy", "full_shard", "shards that the launcher chooses",
             "add --set shard.reshard_after_forward=true for FULL_SHARD, or false for SHARD_GRAD_OP"},
            "shard.reshard_after_forward"},
    Besides{{"fsdp_reshard_after_forward", "true", "shards that the launcher chooses",
             "add --set shard.reshard_after_forward=false"},
            "shard.reshard_after_forward"},
    Besides{{"fsdp_backward_prefetch", "no_prefetch", "gathers that the launcher asks for ahead",
             "add --set shard.backward_prefetch=pre, or post"},
            "shard.backward_prefetch"},
    Besides{{"fsdp_activation_checkpointing", "false", "recomputation that the launcher asks for",
             "add --set recompute.policy=full"},
            "recompute.policy"},
    Besides{{"fsdp_offload_params", "false", kHost, "add --set optimizer_step.offload=true"}, "optimizer_step.offload"},
    Besides{
        {"offload_optimizer_device", "none", "an optimizer in host memory", "add --set optimizer_step.offload=true"},
        "optimizer_step.offload"},
};

constexpr std::string_view kAxes = "ranks by axis on a launcher's command line";

/// Of which no key says another value.
constexpr std::array kNever = {
    OneValue{"offload_param_device", "none", kHost},
    OneValue{"fsdp_forward_prefetch", "false", "gathers that are issued ahead in the forward pass"},
    OneValue{"dynamo_backend", "no", "kernels that torch.compile fuses"},
    OneValue{"use_parallelism_config", "false", kAxes, "pass accelerate's config"},
    OneValue{"use_megatron_lm", "false", "training by Megatron's core"},
    OneValue{"config", "", "a file of arguments beside these", "pass that file, with these in it"},
};

constexpr std::array kMixed = {OneValue{"mixed_precision", "no", "autocast that the launcher asks for",
                                        "write --bf16 true or --fp16 true, which is the same"}};

/// Processes as a launcher counts them: in all, or of a machine.
struct Count {
  std::string_view processes, machines;
};

constexpr std::array kCounts = {Count{"num_processes", ""}, Count{"nproc_per_node", "nnodes"},
                                Count{"num_gpus", "num_nodes"}};

/// The name without dashes, and whether it turns its field off.
std::pair<std::string, bool> FieldName(std::string name) {
  std::ranges::replace(name, '-', '_');
  if (name.starts_with("no_") && std::ranges::find(kOnByThemselves, name.substr(3)) != std::end(kOnByThemselves)) {
    return {name.substr(3), true};
  }
  return {name == "use_liger" ? "use_liger_kernel" : std::move(name), false};
}

ConfigValue Placed(ConfigValue value, const ConfigValue& place) {
  value.where = place.where;
  value.source = place.source;
  for (ConfigValue& item : value.items) {
    item = Placed(std::move(item), place);
  }
  for (ConfigValue::Entry& field : value.fields) {
    field.value = Placed(std::move(field.value), place);
  }
  return value;
}

std::optional<std::int64_t> Counted(const ConfigValue* value) {
  std::int64_t count = 0;
  if (value == nullptr) {
    return 1;
  }
  const char* end = value->text.data() + value->text.size();
  const auto [rest, code] = std::from_chars(value->text.data(), end, count);
  return code == std::errc() && rest == end && count > 0 && count < (1 << 20) ? std::optional(count) : std::nullopt;
}

/// A launcher's option takes one value, and the script's name may follow.
void KeepFirst(ConfigValue& value) {
  if (value.kind == ConfigValue::Kind::list && !value.items.empty()) {
    ConfigValue first = value.items.front();
    value = std::move(first);
  }
}

std::string SayDeepSpeed(const ConfigValue& root) {
  const ConfigValue* stage = Given(root, kStage);
  const bool known = stage != nullptr && (stage->text == "1" || stage->text == "2" || stage->text == "3");
  return fmt::format("add the system that it chooses: --set strategy=deepspeed-zero{}",
                     known ? stage->text : "2");  // accelerate's own default
}

}  // namespace

ConfigValue WithFieldNames(const ConfigValue& root) {
  ConfigValue named = MapAt(root);
  const std::vector<std::string_view> launchers = LauncherFields();
  for (const auto& [key, value] : root.fields) {
    const auto [name, off] = FieldName(key);
    const auto same = std::ranges::find(named.fields, name, &ConfigValue::Entry::key);
    if (same != named.fields.end()) {
      named.fields.erase(same);
    }
    named.fields.push_back({name, off ? Retold(value, "false") : value});
    if (std::ranges::find(launchers, name) != launchers.end()) {
      KeepFirst(named.fields.back().value);
    }
  }
  return named;
}

Result<ConfigValue> AsSection(const ConfigValue& value, std::string_view path) {
  if (value.kind != ConfigValue::Kind::scalar || !value.text.starts_with('{')) {
    return value;
  }
  Result<ConfigValue> section = ParseConfig(value.text, value.where);
  if (!section) {
    return ErrorAt(value, path, fmt::format("is no JSON: {}", section.error().message),
                   "is every bracket and quote closed? In a shell, single quotes keep the double ones");
  }
  return Placed(*std::move(section), value);
}

Result<ConfigValue> WithSections(ConfigValue root) {
  for (ConfigValue::Entry& field : root.fields) {
    if (std::ranges::find(kJson, field.key) != std::end(kJson)) {
      TIDEMARK_ASSIGN(field.value, AsSection(field.value, field.key));
    }
  }
  return root;
}

std::vector<std::string_view> LauncherFields() {
  std::vector<std::string_view> fields = {"mixed_precision"};
  std::ranges::transform(kChoose, std::back_inserter(fields), &Chooses::field);
  std::ranges::transform(kNever, std::back_inserter(fields), &OneValue::path);
  for (const Count& count : kCounts) {
    fields.push_back(count.processes);
    if (!count.machines.empty()) {
      fields.push_back(count.machines);
    }
  }
  return fields;
}

Status CheckLauncher(const ConfigValue& root, Recipe recipe, const Settings& given) {
  // The Trainer's own words come before the launcher's.
  const ConfigValue* fsdp = Given(root, "fsdp");
  const bool shards =
      fsdp != nullptr && (!fsdp->items.empty() || (!fsdp->text.empty() && LowerCase(fsdp->text) != "false"));
  const bool said = shards || Given(root, "deepspeed") != nullptr;
  for (const Chooses& one : kChoose) {
    const ConfigValue* value = Given(root, one.field);
    if (value != nullptr && LowerCase(value->text) != "false" && !said && !Speaks(given, "strategy")) {
      return ErrorAt(*value, one.field, fmt::format("asks for {}, of which TrainingArguments say nothing", one.what),
                     one.hint.empty() ? SayDeepSpeed(root) : std::string(one.hint));
    }
  }
  for (const Besides& one : kBesides) {
    if (!said && !Speaks(given, one.key)) {
      TIDEMARK_TRY(RefuseOthers(root, std::span(&one.field, 1)));
    }
  }
  const ConfigValue* mixed = Given(root, "mixed_precision");
  const bool by_itself = IsInBf16ByItself(recipe) && mixed != nullptr && mixed->text == "bf16";
  if (!by_itself && Given(root, "bf16") == nullptr && Given(root, "fp16") == nullptr) {
    TIDEMARK_TRY(RefuseOthers(root, kMixed));
  }
  return RefuseOthers(root, kNever);
}

ConfigValue LaunchedRanks(const ConfigValue& root) {
  for (const Count& count : kCounts) {
    const ConfigValue* processes = Given(root, count.processes);
    if (processes == nullptr) {
      continue;
    }
    const std::optional<std::int64_t> each = Counted(processes);
    const std::optional<std::int64_t> machines =
        Counted(count.machines.empty() ? nullptr : Given(root, count.machines));
    if (each && machines) {
      return Retold(*processes, std::to_string(*each * *machines));
    }
  }
  return {};
}

}  // namespace tidemark
