// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <span>

#include "base/text.h"
#include "models/configs/config.h"
#include "models/configs/field.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

// huggingface/nanotron src/nanotron/config/*.py at 2411b022. What is not named here does not touch memory or time.

/// A field whose value means the same here and there.
struct Same {
  std::string_view theirs, ours;
  std::string_view fallback;  ///< nanotron's default; empty: nanotron requires the field
};

constexpr std::array kSame = {
    Same{"tokens.sequence_length", "sequence_length", ""},
    Same{"tokens.micro_batch_size", "micro_batch_size", ""},
    Same{"tokens.batch_accumulation_per_replica", "accumulation_steps", ""},
    Same{"parallelism.dp", "layout.dp", ""},
    Same{"parallelism.tp", "layout.tp", ""},
    Same{"parallelism.pp", "layout.pp", ""},
    Same{"parallelism.expert_parallel_size", "layout.ep", "1"},
    Same{"model.model_config.hidden_size", "network.hidden", "4096"},
    Same{"model.model_config.intermediate_size", "network.ffn", "11008"},
    Same{"model.model_config.num_hidden_layers", "network.layers", "32"},
    Same{"model.model_config.num_attention_heads", "network.heads", "32"},
    Same{"model.model_config.tie_word_embeddings", "network.tied_embeddings", "false"},
};

/// A field whose values are other words here. A value that is not listed is refused.
struct Translated {
  std::string_view theirs;
  std::string_view value;  ///< in lower case; "" stands for absent or null, and is the default
  std::string_view ours, meaning;
};

constexpr std::array kTranslated = {
    Translated{"parallelism.pp_engine", "", "schedule", "gpipe"},  // AllForwardAllBackwardPipelineEngine
    Translated{"parallelism.pp_engine", "afab", "schedule", "gpipe"},
    Translated{"parallelism.pp_engine", "1f1b", "schedule", "1f1b"},
    Translated{"parallelism.tp_recompute_allgather", "", "buffers.tp_gather", "pooled"},
    Translated{"parallelism.tp_recompute_allgather", "true", "buffers.tp_gather", "pooled"},
    Translated{"parallelism.tp_recompute_allgather", "false", "buffers.tp_gather", "fresh"},
    Translated{"parallelism.recompute_layer", "", "recompute.policy", "none"},
    Translated{"parallelism.recompute_layer", "false", "recompute.policy", "none"},
    Translated{"parallelism.recompute_layer", "true", "recompute.policy", "full"},
    Translated{"parallelism.tp_linear_async_communication", "", "", ""},
    Translated{"parallelism.tp_linear_async_communication", "false", "", ""},
    Translated{"parallelism.tp_linear_async_communication", "true", "buffers.tp_gather", "async"},
    // The code asks only whether the stage is above zero, which is ZeRO-1. Zero is what strategy nanotron does by
    // itself, and so is not set: with another strategy the job would forbid what that one shards.
    Translated{"optimizer.zero_stage", "0", "", ""},
    Translated{"optimizer.zero_stage", "1", "shard.optimizer", "true"},
    Translated{"optimizer.zero_stage", "2", "shard.optimizer", "true"},
    Translated{"optimizer.zero_stage", "3", "shard.optimizer", "true"},
    Translated{"optimizer.optimizer_factory.name", "", "optimizer", "adamw"},
    Translated{"optimizer.optimizer_factory.name", "adamw", "optimizer", "adamw"},
    Translated{"optimizer.optimizer_factory.name", "sgd", "optimizer", "sgd"},
    Translated{"model.dtype", "", "precision.params", "bf16"},
    Translated{"model.dtype", "bfloat16", "precision.params", "bf16"},
    Translated{"model.dtype", "float16", "precision.params", "fp16"},
    Translated{"model.dtype", "float32", "precision.params", "fp32"},
};

ConfigValue Default(std::string_view text) { return MakeScalar(std::string(text), "default of nanotron"); }

/// Fields that are read by name, beside those of the tables.
constexpr std::array<std::string_view, 10> kOther = {"parallelism.tp_mode",
                                                     "optimizer.clip_grad",
                                                     "optimizer.optimizer_factory.torch_adam_is_fused",
                                                     "optimizer.accumulate_grad_in_fp32",
                                                     "model.ddp_bucket_cap_mb",
                                                     "model.make_vocab_size_divisible_by",
                                                     "model.model_config.vocab_size",
                                                     "model.model_config.num_key_value_heads",
                                                     "model.model_config.is_llama_config",
                                                     "model.model_config.moe_config"};

std::vector<std::string_view> KnownFields() {
  std::vector<std::string_view> known(kOther.begin(), kOther.end());
  for (const Same& field : kSame) {
    known.push_back(field.theirs);
  }
  for (const Translated& field : kTranslated) {
    known.push_back(field.theirs);
  }
  return known;
}

constexpr std::size_t kShort = 4;  ///< letters; shorter names are near to each other by nature: dp, tp, pp

/// What has no use in a section and looks like `key`; null where nothing does. `path`: the section's, with its dot.
const ConfigValue::Entry* Lookalike(const ConfigValue& section, const std::string& path, const std::string& key) {
  const std::vector<std::string_view> known = KnownFields();
  std::vector<std::string> others;
  for (const ConfigValue::Entry& entry : section.fields) {
    const std::string there = path + entry.key;
    const bool has_a_use = std::ranges::any_of(known, [&](std::string_view field) {
      return field.starts_with(there) && (field.size() == there.size() || field[there.size()] == '.');
    });
    if (LowerCase(entry.key) == key && entry.key != key) {
      return &entry;
    }
    if (!has_a_use && entry.key != key && std::min(key.size(), entry.key.size()) >= kShort) {
      others.push_back(entry.key);
    }
  }
  const std::string nearest = Nearest(key, others);
  const auto found = std::ranges::find(section.fields, nearest, &ConfigValue::Entry::key);
  return nearest.empty() ? nullptr : &*found;
}

/// A required field is absent, or a section on the way to it: where the section that lacks it is, or what stands in its
/// place there.
Error Missing(const ConfigValue& root, std::string_view path) {
  const ConfigValue* section = &root;
  std::size_t begin = 0, dot = path.find('.');
  for (; dot != std::string_view::npos; dot = path.find('.', begin)) {
    const ConfigValue* next = section->Find(path.substr(begin, dot - begin));
    if (next == nullptr || next->is_null()) {
      break;
    }
    section = next;
    begin = dot + 1;
  }
  const std::string_view absent = path.substr(0, dot);
  if (!section->is_map()) {
    return ErrorAt(*section, path.substr(0, begin - 1),
                   fmt::format("expected a section, found {}", Describe(*section)));
  }
  const std::string key(absent.substr(begin));
  const ConfigValue::Entry* like = Lookalike(*section, std::string(path.substr(0, begin)), key);
  return ErrorAt(like == nullptr ? *section : like->value, absent, "is missing, and nanotron requires it",
                 like == nullptr ? "" : fmt::format("there is '{}': did you mean '{}'?", like->key, key));
}

Status ReadSame(const ConfigValue& root, Settings& settings) {
  for (const Same& field : kSame) {
    const ConfigValue* value = Given(root, field.theirs);
    if (value == nullptr && field.fallback.empty()) {
      return Missing(root, field.theirs);
    }
    settings[std::string(field.ours)] = value == nullptr ? Default(field.fallback) : *value;
  }
  if (const ConfigValue* kv_heads = Given(root, "model.model_config.num_key_value_heads")) {
    settings["network.kv_heads"] = *kv_heads;
  }
  // Optional without a default: dacite reads an absent one as None, which does not clip (optim/clip_grads.py).
  if (const ConfigValue* norm = Given(root, "optimizer.clip_grad")) {
    settings["optimizer_step.clip_norm"] = *norm;
  }
  return Done{};
}

Status ReadTranslated(const ConfigValue& root, Settings& settings) {
  for (std::size_t i = 0; i < kTranslated.size(); ++i) {
    const std::string_view theirs = kTranslated[i].theirs;
    if (i > 0 && kTranslated[i - 1].theirs == theirs) {
      continue;  // this field is done
    }
    const ConfigValue* value = Given(root, theirs);
    const std::string text = value == nullptr ? "" : LowerCase(value->text);
    std::vector<std::string> choices;
    const Translated* found = nullptr;
    for (const Translated& row : kTranslated) {
      if (row.theirs == theirs && row.value == text) {
        found = &row;
      }
      if (row.theirs == theirs && !row.value.empty()) {
        choices.emplace_back(row.value);
      }
    }
    if (found == nullptr && value == nullptr) {
      return Missing(root, theirs);
    }
    if (found == nullptr) {
      Error error = NotAChoice(*value, choices, {});
      error.where = fmt::format("{}: {}", value->where, theirs);
      return error;
    }
    if (!found->ours.empty()) {
      settings[std::string(found->ours)] =
          value == nullptr ? Default(found->meaning) : Retold(*value, std::string(found->meaning));
    }
  }
  return Done{};
}

/// REDUCE_SCATTER is sequence parallelism.
Status ReadTensorParallelMode(const ConfigValue& root, Settings& settings) {
  const ConfigValue* mode = Given(root, "parallelism.tp_mode");
  if (mode == nullptr) {
    settings["layout.sp"] = Default("false");
    return Done{};
  }
  const std::string text = LowerCase(mode->text);
  if (text != "all_reduce" && text != "reduce_scatter") {
    Error error = NotAChoice(*mode, {"ALL_REDUCE", "REDUCE_SCATTER"}, {});
    error.where = fmt::format("{}: parallelism.tp_mode", mode->where);
    return error;
  }
  settings["layout.sp"] = Retold(*mode, text == "reduce_scatter" ? "true" : "false");
  return Done{};
}

/// Without fp32 accumulation there are no master weights either: the optimizer works on the weights themselves.
Status ReadPrecision(const ConfigValue& root, Settings& settings) {
  constexpr std::string_view kKey = "optimizer.accumulate_grad_in_fp32";
  const ConfigValue* fp32 = Given(root, kKey);
  if (fp32 == nullptr) {
    return Missing(root, kKey);
  }
  const auto is_fp32 = Truth{}.Read(*fp32).At(fmt::format("{}: {}", fp32->where, kKey));
  if (!is_fp32) {
    return is_fp32.error();
  }
  const ConfigValue params = settings.at("precision.params");
  settings["precision.gradients"] = params;
  for (const char* key : {"precision.reduce", "precision.accumulate", "precision.optimizer"}) {
    settings[key] = Retold(*fp32, *is_fp32 ? "fp32" : params.text);
  }
  settings["precision.master"] = Retold(*fp32, *is_fp32 && params.text != "fp32" ? "fp32" : "none");
  return Done{};
}

/// torch.optim takes foreach kernels where it is not told to fuse and all it updates are torch.Tensor or Parameter: the
/// views of FP32GradientAccumulator's buffer are, a NanotronParameter is not. SGD without momentum is one operation
/// either way.
Status ReadKernel(const ConfigValue& root, Settings& settings) {
  constexpr std::string_view kKey = "optimizer.optimizer_factory.torch_adam_is_fused";
  if (settings.at("optimizer").text != "adamw") {
    return Done{};
  }
  const ConfigValue* fused = Given(root, kKey);
  if (fused == nullptr) {
    return Missing(root, kKey);
  }
  TIDEMARK_ASSIGN(const bool one_kernel, Truth{}.Read(*fused).At(fmt::format("{}: {}", fused->where, kKey)));
  const bool has_copies = settings.at("precision.accumulate").text != settings.at("precision.params").text;
  settings["optimizer_step.kernel"] = Retold(*fused, one_kernel ? "fused" : has_copies ? "foreach" : "for-loop");
  return Done{};
}

Status ReadBucket(const ConfigValue& root, Settings& settings) {
  const ConfigValue* cap = Given(root, "model.ddp_bucket_cap_mb");
  if (cap == nullptr) {
    settings["sync.bucket_bytes"] = Default("26214400");
    return Done{};
  }
  const auto mebibytes = WholeNumber{1, 1 << 20}.Read(*cap).At(fmt::format("{}: model.ddp_bucket_cap_mb", cap->where));
  if (!mebibytes) {
    return mebibytes.error();
  }
  settings["sync.bucket_bytes"] = Retold(*cap, std::to_string(*mebibytes * 1024 * 1024));
  return Done{};
}

/// nanotron pads the vocabulary to a multiple of make_vocab_size_divisible_by * tp.
Status ReadVocabulary(const ConfigValue& root, Settings& settings) {
  const ConfigValue* given = Given(root, "model.model_config.vocab_size");
  const ConfigValue size = given == nullptr ? Default("32000") : *given;
  const ConfigValue* divisor = Given(root, "model.make_vocab_size_divisible_by");
  const WholeNumber bounds{1, 1 << 26};
  const auto tokens = bounds.Read(size).At(fmt::format("{}: model.model_config.vocab_size", size.where));
  if (!tokens) {
    return tokens.error();
  }
  std::int64_t multiple = 1;
  if (divisor != nullptr) {
    TIDEMARK_ASSIGN(multiple,
                    bounds.Read(*divisor).At(fmt::format("{}: model.make_vocab_size_divisible_by", divisor->where)));
  }
  const ConfigValue& ranks = settings.at("layout.tp");
  const auto tp = WholeNumber{1, 1 << 20}.Read(ranks).At(fmt::format("{}: parallelism.tp", ranks.where));
  if (!tp) {
    return tp.error();
  }
  settings["network.vocabulary"] = Retold(size, std::to_string(RoundUp(*tokens, multiple * *tp)));
  return Done{};
}

constexpr std::string_view kSections[] = {"tokens", "parallelism",       "optimizer", "optimizer.optimizer_factory",
                                          "model",  "model.model_config"};

/// Two of the sections that every config of nanotron's has: one may be misspelt.
bool Recognises(const ConfigValue& root) {
  const auto sections = {"tokens", "parallelism", "model.model_config"};
  return std::ranges::count_if(sections, [&](const char* section) {
           const ConfigValue* found = root.FindPath(section);
           return found != nullptr && found->is_map();
         }) >= 2;
}

Result<Settings> Read(const ConfigValue& root, const Settings& /*given*/) {
  if (Given(root, "model.model_config") == nullptr) {
    return Missing(root, "model.model_config.is_llama_config");
  }
  if (const ConfigValue* experts = Given(root, "model.model_config.is_llamoe_config")) {
    return ErrorAt(*experts, "model.model_config.is_llamoe_config", "this version has no mixture of experts");
  }
  TIDEMARK_TRY(RefuseMisspelt(root, kSections, KnownFields()));
  const ConfigValue* llama = Given(root, "model.model_config.is_llama_config");
  if (llama == nullptr || LowerCase(llama->text) != "true") {
    return ErrorAt(llama == nullptr ? root : *llama, "model.model_config",
                   "is not a Llama: expected is_llama_config: true",
                   "this version reads nanotron's Llama networks only");
  }
  if (const ConfigValue* experts = Given(root, "model.model_config.moe_config")) {
    return ErrorAt(*experts, "model.model_config.moe_config", "this version has no mixture of experts");
  }
  Settings settings;
  constexpr OneValue kContext{"parallelism.context_parallel_size", "1", kOtherContext, kOtherContextHint};
  TIDEMARK_TRY(RefuseOthers(root, std::span(&kContext, 1)));
  TIDEMARK_TRY(ReadSame(root, settings));
  TIDEMARK_TRY(ReadTranslated(root, settings));
  TIDEMARK_TRY(ReadTensorParallelMode(root, settings));
  TIDEMARK_TRY(ReadPrecision(root, settings));
  TIDEMARK_TRY(ReadKernel(root, settings));
  TIDEMARK_TRY(ReadBucket(root, settings));
  TIDEMARK_TRY(ReadVocabulary(root, settings));
  if (settings.at("layout.pp").text == "1") {
    settings["schedule"].source = "nanotron's pp_engine";  // configs name one also where there is no pipeline
  }
  settings["network.name"] = MakeScalar(
      fmt::format("llama {} x {}", settings.at("network.layers").text, settings.at("network.hidden").text), "derived");
  settings["strategy"] = MakeScalar("nanotron", "the config's format");
  settings["machine"] = AssumedMachine();
  return settings;
}

}  // namespace

ConfigFormat ConfigNanotron() {
  return {"nanotron", "nanotron's training config (YAML), Llama networks; names no machine: h100-sxm-80gb is assumed",
          &Recognises, &Read};
}

}  // namespace tidemark
