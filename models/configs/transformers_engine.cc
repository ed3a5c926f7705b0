// SPDX-License-Identifier: Apache-2.0
#include "models/configs/transformers_engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include "base/text.h"
#include "models/configs/config_accelerate.h"
#include "models/configs/config_deepspeed.h"
#include "models/configs/field.h"
#include "models/configs/transformers_deepspeed.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

// training_args.py, _process_fsdp_args; trainer.py, where it wraps the model (ddp_handler) and enters no_sync.

constexpr std::string_view kVersion = "fsdp_version";
constexpr std::string_view kWraps = "TRANSFORMER_BASED_WRAP";

std::string UpperCase(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](unsigned char letter) { return static_cast<char>(std::toupper(letter)); });
  return text;
}

/// Of `fsdp`: "full_shard auto_wrap", the same as a list, or true.
std::vector<std::string> FsdpWords(const TransformersFields& fields) {
  std::vector<std::string> words;
  const ConfigValue* fsdp = fields.Given("fsdp");
  if (fsdp == nullptr || LowerCase(fsdp->text) == "false") {
    return words;
  }
  std::ranges::transform(fsdp->items, std::back_inserter(words), &ConfigValue::text);
  std::istringstream text(fsdp->text);
  std::copy(std::istream_iterator<std::string>(text), {}, std::back_inserter(words));
  std::ranges::transform(words, words.begin(), &LowerCase);
  return words;
}

bool Has(const std::vector<std::string>& words, std::string_view word) {
  return std::ranges::find(words, word) != words.end();
}

Status CheckWords(const TransformersFields& fields, const std::vector<std::string>& words) {
  const std::vector<std::string> known = {"full_shard", "shard_grad_op", "hybrid_shard", "hybrid_shard_zero2",
                                          "no_shard",   "offload",       "auto_wrap",    "true"};
  for (const std::string& word : words) {
    if (!Has(known, word)) {
      Error error = NotAChoice(Retold(*fields.Given("fsdp"), word), known, {});
      error.where = fmt::format("{}: fsdp", fields.Given("fsdp")->where);
      return error;
    }
  }
  return Done{};
}

/// fsdp_config's field, with the prefix that accelerate gives it or without.
const ConfigValue* OfConfig(const TransformersFields& fields, std::string_view name) {
  const ConfigValue* plain = fields.Given(fmt::format("fsdp_config.{}", name));
  return plain == nullptr ? fields.Given(fmt::format("fsdp_config.fsdp_{}", name)) : plain;
}

/// Version 1 for words, as all versions of transformers have it that take no `true`; 2 for that.
ConfigValue VersionOf(const TrainerArguments& arguments, const std::vector<std::string>& words) {
  if (const ConfigValue* version = OfConfig(arguments.fields, "version")) {
    return *version;
  }
  if (words.empty()) {
    const ConfigValue& strategy = arguments.given.at("strategy");
    return Retold(strategy, strategy.text.starts_with("fsdp1") ? "1" : "2");
  }
  return arguments.fields.Default(Has(words, "true") ? "2" : "1");
}

/// What the words of `fsdp` come to in accelerate's fields.
void PutWords(const TrainerArguments& arguments, const std::vector<std::string>& words, bool first_version,
              ConfigValue& plugin) {
  const ConfigValue* sized = OfConfig(arguments.fields, "min_num_params");
  const bool by_size = sized != nullptr && sized->text != "0";
  const ConfigValue place = arguments.fields.Value("fsdp", "");
  const auto put = [&](const char* field, std::string text) {
    plugin.fields.push_back({field, Retold(place, std::move(text))});
  };
  if (OfConfig(arguments.fields, "auto_wrap_policy") == nullptr &&
      (words.empty() || Has(words, "true") || Has(words, "auto_wrap"))) {
    put("fsdp_auto_wrap_policy", by_size ? "SIZE_BASED_WRAP" : std::string(kWraps));
  }
  if (Has(words, "offload") && OfConfig(arguments.fields, "cpu_offload") == nullptr) {
    put("fsdp_offload_params", "true");
  }
  for (const std::string& word : words) {
    if (word.find("shard") == std::string::npos || OfConfig(arguments.fields, "reshard_after_forward") != nullptr) {
      continue;
    }
    if (first_version) {
      put("fsdp_sharding_strategy", UpperCase(word));
    } else {
      put("fsdp_reshard_after_forward", word == "shard_grad_op" ? "false" : "true");
    }
  }
}

/// What fsdp_config says, in accelerate's fields; PutWords and VersionOf read the rest.
Status PutFields(const TransformersFields& fields, ConfigValue& plugin) {
  const ConfigValue* section = fields.Given("fsdp_config");
  if (section == nullptr) {
    return Done{};
  }
  if (!section->is_map()) {
    return ErrorAt(*section, "fsdp_config", fmt::format("expected a section, found {}", Describe(*section)),
                   "write the fields of that file here");
  }
  for (const auto& [key, value] : section->fields) {
    const std::string name = key.starts_with("fsdp_") ? key.substr(5) : key;
    if (name.starts_with("xla") && !value.is_null() && LowerCase(value.text) != "false") {
      return ErrorAt(value, fmt::format("fsdp_config.{}", key), "XLA is not supported by this version",
                     "set it to false");
    }
    if (name == "offload_params") {  // accelerate's, which transformers does not hand on
      if (!value.is_null() && LowerCase(value.text) != "false") {
        return ErrorAt(value, fmt::format("fsdp_config.{}", key), "is not read by transformers",
                       "set cpu_offload to true in its place, or write offload into fsdp");
      }
      continue;
    }
    if (!name.starts_with("xla") && name != "version" && name != "limit_all_gathers") {
      plugin.fields.push_back({name == "cpu_offload" ? "fsdp_offload_params" : fmt::format("fsdp_{}", name), value});
    }
  }
  return Done{};
}

/// FSDP as accelerate's plugin has it, of TrainingArguments' fields.
Result<Settings> ReadUnderFsdp(const TrainerArguments& arguments) {
  const TransformersFields& fields = arguments.fields;
  const std::vector<std::string> words = FsdpWords(fields);
  TIDEMARK_TRY(CheckWords(fields, words));
  if (!words.empty() && !Has(words, "auto_wrap") && !Has(words, "true") &&
      OfConfig(fields, "auto_wrap_policy") == nullptr) {
    return ErrorAt(
        *fields.Given("fsdp"), "fsdp",
        "has no auto_wrap, and without it the whole model is one unit, which is not supported by this version",
        fmt::format("set it to '{} auto_wrap'", fmt::join(words, " ")));
  }
  const ConfigValue version = VersionOf(arguments, words);
  const bool first_version = version.text == "1";
  const ConfigValue* twice = OfConfig(fields, "activation_checkpointing");
  if (twice != nullptr && LowerCase(twice->text) == "true" && fields.Given("gradient_checkpointing") != nullptr &&
      arguments.recomputes) {
    return ErrorAt(*twice, "fsdp_config.activation_checkpointing",
                   "and gradient_checkpointing cannot both be true, says transformers", "set one of them to false");
  }
  ConfigValue root = MapAt(fields.Value("fsdp", ""));
  ConfigValue plugin = MapAt(fields.Value("fsdp_config", ""));
  plugin.fields.push_back({std::string(kVersion), version});
  PutWords(arguments, words, first_version, plugin);
  TIDEMARK_TRY(PutFields(fields, plugin));
  root.fields.push_back({"fsdp_config", std::move(plugin)});
  root.fields.push_back({"mixed_precision", Retold(arguments.mixed_place, arguments.mixed)});
  if (const ConfigValue* machines = Find(arguments.given, "shard.replicas")) {
    root.fields.push_back({"num_machines", *machines});
  }
  Settings known = arguments.known;
  if (!arguments.loaded.text.empty()) {
    known["precision.params"] = arguments.loaded;
  }
  TIDEMARK_ASSIGN(Settings settings, ReadFsdpPlugin(root, known));
  if (arguments.mixed == "no") {
    settings["precision.params"] = arguments.loaded;
  }
  if (const ConfigValue* limit = OfConfig(fields, "limit_all_gathers"); limit != nullptr && first_version) {
    settings["shard.limit_all_gathers"] = *limit;
  }
  return settings;
}

/// A dtype in which nothing is mixed, all of it.
void PutOneType(const ConfigValue& type, const ConfigValue& none, Settings& settings) {
  for (const char* key :
       {"precision.params", "precision.gradients", "precision.reduce", "precision.accumulate", "precision.optimizer"}) {
    settings[key] = type;
  }
  settings["precision.master"] = none;
}

/// DistributedDataParallel as the Trainer asks for it; one process has none.
Result<Settings> ReadUnderDdp(const TrainerArguments& arguments) {
  const TransformersFields& fields = arguments.fields;
  Settings settings;
  settings["strategy"] = MakeScalar("ddp-last", "assumed");
  if (arguments.mixed != "no" && arguments.loaded.text == "fp32") {
    return ErrorAt(
        arguments.mixed_place, arguments.mixed,
        fmt::format("over fp32 weights ({}) is autocast under DDP, which is not supported by this version",
                    arguments.loaded.source),
        "add --set precision.params=bf16 for weights that are loaded so, or the system that the launcher chooses, "
        "for instance --set strategy=deepspeed-zero3");
  }
  PutOneType(arguments.loaded, fields.Default("none"), settings);
  const ConfigValue* ranks = Find(arguments.known, "layout.dp");
  if (ranks != nullptr && ranks->text == "1") {
    return settings;
  }
  constexpr std::string_view kUnused = "ddp_find_unused_parameters";
  constexpr std::string_view kStatic = "ddp_static_graph";
  constexpr std::string_view kBucket = "ddp_bucket_cap_mb";
  TIDEMARK_ASSIGN(const bool unused, fields.IsTrue(kUnused, !arguments.recomputes));
  settings["sync.find_unused_parameters"] = Retold(fields.Value(kUnused, ""), unused ? "true" : "false");
  TIDEMARK_ASSIGN(const bool fixed, fields.IsTrue(kStatic));
  if (fixed) {
    settings["sync.static_graph"] = Retold(*fields.Given(kStatic), "true");
  }
  // accelerate hands on what differs from its own default, and only then is PyTorch's first bucket as large as others.
  TIDEMARK_ASSIGN(const std::int64_t mib, fields.Read(WholeNumber{1, 1 << 16}, kBucket, "25"));
  if (mib != 25) {
    const ConfigValue bytes = Retold(*fields.Given(kBucket), std::to_string(mib << 20));
    settings["sync.bucket_bytes"] = settings["sync.first_bucket_bytes"] = bytes;
  }
  return settings;
}

/// DeepSpeed that the launcher chooses and the command line names by its strategy, whose defaults hold for all but the
/// dtype that the model computes with.
Settings UnderNamedDeepSpeed(const TrainerArguments& arguments) {
  Settings settings;
  settings["strategy"] = arguments.given.at("strategy");
  if (arguments.mixed == "no") {
    PutOneType(Retold(arguments.mixed_place, "fp32"), arguments.fields.Default("none"), settings);
    return settings;
  }
  const ConfigValue half = Retold(arguments.mixed_place, arguments.mixed);
  settings["precision.params"] = settings["precision.gradients"] = half;
  if (arguments.mixed == "fp16") {  // strategies' own dtypes are those of bf16
    settings["precision.reduce"] = settings["precision.accumulate"] = half;
  }
  return settings;
}

/// The command that prices a DeepSpeed file with what is known here.
std::string CommandFor(const ConfigValue& file, const TrainerArguments& arguments) {
  std::string command = fmt::format("tidemark predict {}", file.text);
  for (const char* key : {"network", "sequence_length", "layout.dp", "micro_batch_size", "accumulation_steps"}) {
    if (const ConfigValue* value = Find(arguments.known, key)) {
      command += fmt::format(" --set {}={}", key, value->text);
    }
  }
  if (arguments.mixed != "no") {
    command += fmt::format(" --set precision.params={}", arguments.mixed);
  }
  return command + (arguments.recomputes ? " --set recompute.policy=full" : "");
}

Result<Settings> ReadUnderDeepSpeed(const TrainerArguments& arguments) {
  const TransformersFields& fields = arguments.fields;
  const ConfigValue* said = fields.Given("deepspeed");
  if (said == nullptr) {
    return UnderNamedDeepSpeed(arguments);
  }
  TIDEMARK_ASSIGN(ConfigValue config, FindDeepSpeedConfig(*said, CommandFor(*said, arguments)));
  const auto half = [&](const char* type) {
    return Retold(arguments.mixed_place, arguments.mixed == type ? "true" : "false");
  };
  const std::vector<DeepSpeedArgument> filled = {
      {"train_micro_batch_size_per_gpu", "per_device_train_batch_size", arguments.known.at("micro_batch_size"), true,
       arguments.given.contains("micro_batch_size")},
      {"gradient_accumulation_steps", "gradient_accumulation_steps", arguments.known.at("accumulation_steps"), true,
       arguments.given.contains("accumulation_steps")},
      {"gradient_clipping", "max_grad_norm",
       fields.Value("max_grad_norm", fields.IsNull("max_grad_norm") ? "0" : "1.0"), false,
       Speaks(arguments.given, "optimizer_step.clip_norm")},
      {"bf16.enabled", "bf16", half("bf16"), false, Speaks(arguments.given, "precision.params")},
      {"fp16.enabled", "fp16", half("fp16"), false, Speaks(arguments.given, "precision.params")},
  };
  TIDEMARK_ASSIGN(config, FillIn(std::move(config), filled));
  Settings known = arguments.known;
  for (const char* now_in_config : {"micro_batch_size", "accumulation_steps"}) {
    if (!arguments.given.contains(now_in_config)) {
      known.erase(now_in_config);
    }
  }
  TIDEMARK_ASSIGN(Settings settings, ReadDeepSpeed(config, known));
  for (const char* decided_here : {"recompute.policy", "micro_batch_size", "accumulation_steps"}) {
    settings.erase(decided_here);
  }
  if (Given(config, "optimizer") != nullptr || settings.contains("optimizer_step.offload")) {
    settings.try_emplace("optimizer", fields.Default("adamw"));  // DeepSpeed's own, not that of `optim`
  }
  return settings;
}

/// Whether the Trainer leaves no_sync out (transformers#43919, February 2026; for some versions before it did not
/// look).
Status SyncEach(const TransformersFields& fields, Settings& settings) {
  const std::pair<std::string_view, std::string_view> each[] = {
      {"ddp-last", "ddp-every"}, {"fsdp1-no-sync", "fsdp1"}, {"fsdp2-defer", "fsdp2-scatter-each"}};
  for (const char* path : {"accelerator_config.gradient_accumulation_kwargs.sync_each_batch", "sync_each_batch"}) {
    TIDEMARK_ASSIGN(const bool asked, fields.IsTrue(path));
    ConfigValue& strategy = settings["strategy"];
    const auto found = std::ranges::find(each, strategy.text, [](const auto& pair) { return pair.first; });
    if (asked && found != std::end(each)) {
      strategy = Retold(*fields.Given(path), std::string(found->second));
    }
  }
  return Done{};
}

}  // namespace

bool ShardsWithinMachines(const TransformersFields& fields) {
  return std::ranges::any_of(FsdpWords(fields), [](const std::string& word) { return word.starts_with("hybrid"); });
}

Result<Engine> EngineOf(const TransformersFields& fields, const Settings& given) {
  const ConfigValue* deepspeed = fields.Given("deepspeed");
  const bool shards = !FsdpWords(fields).empty();
  if (deepspeed != nullptr && shards) {
    return ErrorAt(*deepspeed, "deepspeed", "and fsdp exclude each other", "remove one of them");
  }
  const ConfigValue* strategy = Find(given, "strategy");
  const std::string asked = strategy == nullptr || deepspeed != nullptr || shards ? "" : strategy->text;
  return deepspeed != nullptr || asked.starts_with("deepspeed") ? Engine::deepspeed
         : shards || asked.starts_with("fsdp")                  ? Engine::fsdp
                                                                : Engine::ddp;
}

Result<Settings> ReadEngine(Engine engine, const TrainerArguments& arguments) {
  if (engine == Engine::deepspeed) {
    return ReadUnderDeepSpeed(arguments);
  }
  TIDEMARK_ASSIGN(Settings settings, engine == Engine::fsdp ? ReadUnderFsdp(arguments) : ReadUnderDdp(arguments));
  TIDEMARK_TRY(SyncEach(arguments.fields, settings));
  return settings;
}

}  // namespace tidemark
