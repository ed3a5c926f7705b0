// SPDX-License-Identifier: Apache-2.0
#include "models/configs/config_deepspeed.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "base/text.h"
#include "models/configs/config.h"
#include "models/configs/deepspeed_batch.h"
#include "models/configs/deepspeed_fields.h"
#include "models/configs/field.h"
#include "models/configs/translation.h"
#include "models/job/read_network.h"

namespace tidemark {
namespace {

// DeepSpeed at edaa7221: deepspeed/runtime/config.py (batch sizes, optimizer, dtypes), zero/config.py, engine.py
// (get_data_types, communication_data_type, _do_optimizer_sanity_check). What is not named here touches neither memory
// nor time, or only where the model's own code asks for it. "auto" is not DeepSpeed's: Hugging Face's Trainer and
// accelerate put a value in its place (HfTrainerDeepSpeedConfig.trainer_config_finalize).

/// A number of elements in ZeRO's section, and the stages that look at it.
struct Elements {
  std::string_view theirs, ours;
  std::int64_t from_stage;
  double of_hidden;  ///< what "auto" stands for: this, times the hidden size to the power below
  int power;         ///< 0: Hugging Face has no value for it
};

constexpr std::array kElements = {
    Elements{"zero_optimization.reduce_bucket_size", "sync.bucket_elements", 1, 1, 2},
    Elements{"zero_optimization.stage3_prefetch_bucket_size", "shard.prefetch_elements", 3, 0.9, 2},
    Elements{"zero_optimization.stage3_param_persistence_threshold", "shard.persistence_threshold", 3, 10, 1},
    Elements{"zero_optimization.stage3_max_live_parameters", "shard.max_live_elements", 3, 0, 0},
    Elements{"zero_optimization.stage3_max_reuse_distance", "shard.reuse_distance", 3, 0, 0},
};

/// true or false in ZeRO's section, and the stages that look at it.
struct Switch {
  std::string_view theirs, ours;
  std::int64_t from_stage, to_stage;
  std::string_view yes, no;
};

constexpr std::array kSwitches = {
    Switch{"zero_optimization.overlap_comm", "sync.overlap", 1, 3, "true", "false"},
    Switch{"zero_optimization.contiguous_gradients", "buffers.contiguous_gradients", 1, 3, "true", "false"},
    Switch{"zero_optimization.reduce_scatter", "sync.collective", 1, 3, "reduce_scatter", "all_reduce"},
    Switch{"zero_optimization.use_multi_rank_bucket_allreduce", "sync.multi_rank_bucket", 1, 2, "true", "false"},
};

/// Of the training; stays under another strategy, as a "default of DeepSpeed" does not.
ConfigValue Usual(std::string text) { return MakeScalar(std::move(text), "DeepSpeed's default"); }

template <class Form>
auto Read(const Form& form, const ConfigValue& value, std::string_view path) {
  return form.Read(value).At(fmt::format("{}: {}", value.where, path));
}

Result<bool> ReadTruth(const ConfigValue& root, std::string_view path, bool absent) {
  const ConfigValue* value = Said(root, path);
  return value == nullptr ? Result<bool>(absent) : Read(Truth{}, *value, path);
}

/// A whole number, which JSON may spell 5e8.
Result<std::int64_t> ReadElements(const ConfigValue& value, std::string_view path) {
  double number = 0;
  const char* const end = value.text.data() + value.text.size();
  const auto [rest, code] = std::from_chars(value.text.data(), end, number);
  const bool is_number = value.kind == ConfigValue::Kind::scalar && code == std::errc() && rest == end;
  if (!is_number || number != std::floor(number) || number < 0 || number > 1e12) {
    return ErrorAt(value, path, fmt::format("expected a whole number of elements, found {}", Describe(value)),
                   "for example 5e8");
  }
  return static_cast<std::int64_t>(number);
}

Result<std::int64_t> ReadStage(const ConfigValue& root) {
  const ConfigValue* stage = Given(root, "zero_optimization.stage");
  return stage == nullptr ? Result<std::int64_t>(0) : Read(WholeNumber{0, 3}, *stage, "zero_optimization.stage");
}

Result<bool> ReadOffload(const ConfigValue& root) {
  TIDEMARK_ASSIGN(const bool deprecated, ReadTruth(root, "zero_optimization.cpu_offload", false));
  constexpr std::string_view kDevice = "zero_optimization.offload_optimizer.device";
  const ConfigValue* device = Said(root, kDevice);
  if (device == nullptr) {
    return deprecated;
  }
  const Choice<bool> choice{{{"none", false}, {"cpu", true}}, {"nvme"}};
  return Read(choice, *device, kDevice);
}

/// What the model computes with, and where that stands.
Result<ConfigValue> ReadModelType(const ConfigValue& root, const Settings& given) {
  TIDEMARK_ASSIGN(const bool fp16, ReadTruth(root, "fp16.enabled", false));
  TIDEMARK_ASSIGN(const bool bf16, ReadTruth(root, "bf16.enabled", false));
  if (fp16 && bf16) {
    return ErrorAt(*Said(root, "bf16.enabled"), "bf16.enabled",
                   "bfloat16 and fp16 modes cannot be simultaneously enabled", "set one of them to false");
  }
  if (const ConfigValue* params = Find(given, "precision.params")) {
    return *params;
  }
  if (fp16 || bf16) {
    return Retold(*Said(root, fp16 ? "fp16.enabled" : "bf16.enabled"), fp16 ? "fp16" : "bf16");
  }
  for (const char* path : {"bf16.enabled", "fp16.enabled"}) {
    if (const ConfigValue* value = Given(root, path); value != nullptr && Said(root, path) == nullptr) {
      return ErrorAt(*value, path, "is 'auto', and the command line does not say what Hugging Face puts there",
                     "add --set precision.params=bf16, as with --bf16 (or fp16, or fp32 with neither)");
    }
  }
  return Usual("fp32");
}

Result<ConfigValue> ReadType(const ConfigValue& root, std::string_view path, const ConfigValue& absent) {
  const ConfigValue* value = Said(root, path);
  if (value == nullptr) {
    return absent;
  }
  const Choice<std::string> choice{{{"bf16", "bf16"},
                                    {"bfloat16", "bf16"},
                                    {"fp16", "fp16"},
                                    {"float16", "fp16"},
                                    {"half", "fp16"},
                                    {"fp32", "fp32"},
                                    {"float32", "fp32"},
                                    {"float", "fp32"}}};  // DtypeEnum's, less torch.
  TIDEMARK_ASSIGN(std::string type, Read(choice, *value, path));
  return Retold(*value, std::move(type));
}

/// Whether DeepSpeed wraps the model's optimizer in BF16_Optimizer (_do_optimizer_sanity_check).
bool IsWrapped(std::int64_t stage, bool offload, const Settings& settings) {
  return stage == 1 && !offload && settings.at("precision.params").text == "bf16" &&
         settings.at("precision.accumulate").text == "fp32";
}

/// The optimizer that DeepSpeed wraps the model's in, as the strategy is called here.
Status ReadStrategy(const ConfigValue& root, std::int64_t stage, bool offload, bool wrapped, Settings& settings) {
  const ConfigValue* named = Given(root, "zero_optimization.stage");
  const std::string name = wrapped ? "deepspeed-bf16" : fmt::format("deepspeed-zero{}", stage);
  settings["strategy"] = named == nullptr ? Usual(name) : Retold(*named, name);
  constexpr std::string_view kImmediate = "bf16.immediate_grad_update";
  TIDEMARK_ASSIGN(const bool immediate, ReadTruth(root, kImmediate, false));
  if (wrapped && immediate) {
    return ErrorAt(*Said(root, kImmediate), kImmediate,
                   "gradients that BF16_Optimizer adds up in hooks are not supported by this version",
                   "remove the field: they are then added up behind the backward pass, DeepSpeed's default");
  }
  if (offload) {
    const ConfigValue* device = Said(root, "zero_optimization.offload_optimizer.device");
    device = device == nullptr ? Said(root, "zero_optimization.cpu_offload") : device;
    settings["optimizer_step.offload"] = Retold(*device, "true");
  }
  return Done{};
}

/// engine.py, get_data_types and communication_data_type. Stage 2 adds up in the model's dtype, whatever
/// grad_accum_dtype says.
Status ReadPrecision(const ConfigValue& root, const Settings& given, std::int64_t stage, Settings& settings) {
  TIDEMARK_ASSIGN(const ConfigValue type, ReadModelType(root, given));
  settings["precision.params"] = settings["precision.gradients"] = type;
  TIDEMARK_ASSIGN(const ConfigValue accumulate, ReadType(root, "data_types.grad_accum_dtype", type));
  settings["precision.accumulate"] = stage == 2 ? type : accumulate;
  TIDEMARK_ASSIGN(settings["precision.reduce"], ReadType(root, "communication_data_type", type));
  settings["precision.master"] = Usual(stage == 0 && type.text == "fp32" ? "none" : "fp32");
  return Done{};
}

/// The hidden size, which Hugging Face's "auto" asks the model for.
Result<std::int64_t> ReadHidden(const Settings& given, const ConfigValue& value, std::string_view path) {
  std::map<std::string, std::string> sources;
  TIDEMARK_ASSIGN(const Network network, ReadNetwork(given, {}, sources));
  const auto* decoder = std::get_if<Decoder>(&network.shape);
  if (decoder == nullptr) {
    return ErrorAt(value, path, "is 'auto', which follows from the hidden size of a model, and this network has none",
                   "write the number of elements");
  }
  return decoder->hidden;
}

Status ReadBuffers(const ConfigValue& root, const Settings& given, std::int64_t stage, Settings& settings) {
  for (const Elements& field : kElements) {
    const std::string_view path = field.theirs;
    const ConfigValue* value = Given(root, path);
    if (value == nullptr || stage < field.from_stage) {
      continue;
    }
    if (Said(root, path) != nullptr) {
      TIDEMARK_ASSIGN(const std::int64_t elements, ReadElements(*value, path));
      settings[std::string(field.ours)] = Retold(*value, std::to_string(elements));
    } else if (field.power > 0) {
      TIDEMARK_ASSIGN(const std::int64_t hidden, ReadHidden(given, *value, path));
      const double elements = field.of_hidden * std::pow(static_cast<double>(hidden), field.power);
      settings[std::string(field.ours)] = Retold(*value, std::to_string(static_cast<std::int64_t>(elements)));
    }
  }
  for (const Switch& field : kSwitches) {
    const std::string_view path = field.theirs;
    const ConfigValue* value = Said(root, path);
    if (value != nullptr && field.from_stage <= stage && stage <= field.to_stage) {
      TIDEMARK_ASSIGN(const bool yes, Read(Truth{}, *value, path));
      settings[std::string(field.ours)] = Retold(*value, std::string(yes ? field.yes : field.no));
    }
  }
  return Done{};
}

/// What DeepSpeed changes itself, with a warning: a pipeline does not overlap (pipe/engine.py), and an optimizer in
/// host memory has contiguous gradients (zero/config.py).
void Correct(const Settings& given, bool offload, Settings& settings) {
  const ConfigValue* stages = Find(given, "layout.pp");
  const auto correct = [&](const char* key, const char* value) {
    if (const auto setting = settings.find(key); setting != settings.end()) {
      setting->second = Retold(setting->second, value);
    }
  };
  if (stages != nullptr && stages->text != "1") {
    correct("sync.overlap", "false");
  }
  if (offload) {
    correct("buffers.contiguous_gradients", "true");
  }
}

Status ReadOptimizer(const ConfigValue& root, const Settings& given, Settings& settings) {
  if (const ConfigValue* type = Said(root, "optimizer.type"); type != nullptr && !Speaks(given, "optimizer")) {
    const Choice<std::string> choice{{{"AdamW", "adamw"}, {"Adam", "adamw"}, {"SGD", "sgd"}}};
    ConfigValue spelled = *type;  // DeepSpeed knows them in small letters, too
    for (const std::string& known : choice.Values()) {
      spelled.text = LowerCase(known) == LowerCase(type->text) ? known : spelled.text;
    }
    TIDEMARK_ASSIGN(const std::string name, Read(choice, spelled, "optimizer.type"));
    settings["optimizer"] = Retold(*type, name);
    TIDEMARK_ASSIGN(const bool torch, ReadTruth(root, "optimizer.params.torch_adam", false));
    if (torch || name == "sgd") {  // torch.optim's default on a GPU
      settings["optimizer_step.kernel"] = Retold(*type, "foreach");
    }
  }
  const ConfigValue* norm = Said(root, "gradient_clipping");
  const bool is_auto = norm == nullptr && Given(root, "gradient_clipping") != nullptr;
  const ConfigValue clip = norm != nullptr ? *norm
                                           : MakeScalar("1.0", is_auto ? "Hugging Face's default (max_grad_norm)"
                                                                       : "DeepSpeed's default since June 2026 (#8068)");
  TIDEMARK_ASSIGN(const double length, Read(RealNumber{0, 1e9}, clip, "gradient_clipping"));
  if (length > 0) {
    settings["optimizer_step.clip_norm"] = clip;
  }
  return Done{};
}

Status ReadLayout(const ConfigValue& root, Settings& settings) {
  constexpr std::string_view kTensor = "tensor_parallel.autotp_size";
  if (const ConfigValue* value = Said(root, kTensor)) {
    TIDEMARK_ASSIGN(const std::int64_t ranks, Read(WholeNumber{0, 1 << 20}, *value, kTensor));
    settings["layout.tp"] = Retold(*value, std::to_string(std::max<std::int64_t>(ranks, 1)));
  }
  return Done{};
}

/// "bfloat16" is an older name of the section, and stage 3's fields may stand without their prefix (zero/config.py).
ConfigValue WithTodaysNames(ConfigValue root) {
  constexpr std::string_view kPrefixed[] = {"prefetch_bucket_size",        "param_persistence_threshold",
                                            "model_persistence_threshold", "max_live_parameters",
                                            "max_reuse_distance",          "module_granularity_threshold",
                                            "allgather_sequential",        "use_all_reduce_for_fetch_params"};
  const bool has_bf16 = root.Find("bf16") != nullptr;
  for (ConfigValue::Entry& field : root.fields) {
    field.key = field.key == "bfloat16" && !has_bf16 ? "bf16" : field.key;
    if (field.key == "zero_optimization") {
      for (ConfigValue::Entry& zero : field.value.fields) {
        const bool prefixed = std::ranges::find(kPrefixed, zero.key) != std::end(kPrefixed);
        zero.key = prefixed ? "stage3_" + zero.key : zero.key;
      }
    }
  }
  return root;
}

/// One group of the optimizer's step is modelled for each 1e9 elements of a rank's partition: a larger size is the same
/// where all of it fits into one.
Status CheckSubGroup(const ConfigValue& root, const Settings& given, const Settings& settings) {
  constexpr std::string_view kPath = "zero_optimization.sub_group_size";
  const ConfigValue* value = Said(root, kPath);
  if (value == nullptr) {
    return Done{};
  }
  constexpr std::int64_t kModelled = 1'000'000'000;
  TIDEMARK_ASSIGN(const std::int64_t size, ReadElements(*value, kPath));
  const ConfigValue* dp = Find(given, "layout.dp") != nullptr ? Find(given, "layout.dp") : Find(settings, "layout.dp");
  TIDEMARK_ASSIGN(const std::int64_t ranks, (Read(WholeNumber{1, 1 << 20}, *dp, "layout.dp")));
  std::map<std::string, std::string> sources;
  TIDEMARK_ASSIGN(const Network network, ReadNetwork(given, {}, sources));
  const bool is_one = size > kModelled && ParameterCount(network) / ranks <= kModelled;
  return size == kModelled || is_one
             ? Status(Done{})
             : Status(ErrorAt(*value, kPath,
                              fmt::format("{} is not supported by this version: other sub groups of the "
                                          "optimizer's step",
                                          Describe(*value)),
                              "remove the field to price DeepSpeed's default, 1e9"));
}

/// A number of ranks that the file's batch divides by, for a hint.
std::string_view RanksToTry(const ConfigValue& root) {
  const auto read = [&](const char* path) {
    const ConfigValue* value = Said(root, path);
    const Result<std::int64_t> number =
        value == nullptr ? Result<std::int64_t>(0) : WholeNumber{1, std::int64_t{1} << 40}.Read(*value);
    return number ? *number : 0;
  };
  const std::int64_t train = read("train_batch_size");
  const std::int64_t each =
      std::max<std::int64_t>(read("train_micro_batch_size_per_gpu"), 1) *
      std::max<std::int64_t>(std::min<std::int64_t>(read("gradient_accumulation_steps"), 1 << 20), 1);
  for (const auto& [ranks, text] : {std::pair(8, "8"), std::pair(4, "4"), std::pair(2, "2")}) {
    if (train == 0 || (each <= train && train / each % ranks == 0)) {
      return text;
    }
  }
  return "1";
}

bool Recognises(const ConfigValue& root) {
  const ConfigValue* zero = root.Find("zero_optimization");
  return zero != nullptr || root.Find("train_micro_batch_size_per_gpu") != nullptr ||
         (root.Find("train_batch_size") != nullptr &&
          (root.Find("gradient_accumulation_steps") != nullptr || root.Find("fp16") != nullptr ||
           root.Find("bf16") != nullptr || root.Find("optimizer") != nullptr));
}

}  // namespace

Result<Settings> ReadDeepSpeed(const ConfigValue& file, const Settings& given) {
  const ConfigValue root = WithTodaysNames(file);
  TIDEMARK_TRY(CheckDeepSpeedFields(root));
  Settings settings;
  TIDEMARK_TRY(ReadDeepSpeedBatch(root, given, settings));
  // The two last follow from the size of the whole batch, once the ranks are counted.
  const bool whole = Said(root, "train_batch_size") != nullptr && !Speaks(settings, "layout.dp");
  std::array unsaid_here = kSaidByScripts;
  unsaid_here[2].example = RanksToTry(root);
  const std::span<const Unsaid> unsaid = unsaid_here;
  TIDEMARK_TRY(RefuseUnsaid(root, "DeepSpeed", whole ? unsaid.first(3) : unsaid, settings, given));
  TIDEMARK_TRY(ReadLayout(root, settings));
  TIDEMARK_ASSIGN(const std::int64_t stage, ReadStage(root));
  TIDEMARK_ASSIGN(const bool offload, ReadOffload(root));
  TIDEMARK_TRY(ReadPrecision(root, given, stage, settings));
  const bool wrapped = IsWrapped(stage, offload, settings);
  TIDEMARK_TRY(ReadStrategy(root, stage, offload, wrapped, settings));
  if (!wrapped) {  // BF16_Optimizer has no buckets of ZeRO's
    TIDEMARK_TRY(ReadBuffers(root, given, stage, settings));
  }
  if (stage == 3) {
    TIDEMARK_TRY(CheckSubGroup(root, given, settings));
  }
  Correct(given, offload, settings);
  TIDEMARK_TRY(ReadOptimizer(root, given, settings));
  settings["recompute.policy"] = MakeScalar("none", "assumed");  // the model's code decides (gradient_checkpointing)
  settings["machine"] = AssumedMachine();
  return settings;
}

ConfigFormat ConfigDeepspeed() {
  return {"deepspeed",
          "DeepSpeed's config (JSON): stage, batch, dtypes, buckets; network, sequence_length and layout.dp come from "
          "--set, and so does what is \"auto\"",
          &Recognises, &ReadDeepSpeed};
}

}  // namespace tidemark
