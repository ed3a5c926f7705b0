// SPDX-License-Identifier: Apache-2.0
#include "models/configs/config_huggingface.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "models/configs/config.h"
#include "models/configs/huggingface_decoder.h"
#include "models/configs/huggingface_deepseek.h"
#include "models/configs/huggingface_experts.h"
#include "models/configs/huggingface_gpt.h"
#include "models/configs/huggingface_keys.h"
#include "models/configs/huggingface_norms.h"
#include "models/configs/huggingface_windows.h"

namespace tidemark {
namespace {

using Json = nlohmann::json;
using Keys = HuggingFaceKeys;

// Heads that transformers has for most of these model types and that are no projection on the vocabulary. The class
// without a head (LlamaModel) is read as the language model: such files are published for both.
constexpr std::string_view kOtherHeads[] = {"ForSequenceClassification", "ForTokenClassification",
                                            "ForQuestionAnswering"};

/// What any file is refused for, whatever its model type: an adapter's, which has none.
void RequireLanguageModel(Keys& keys) {
  for (const std::string& architecture : keys.Words("architectures")) {
    for (const std::string_view head : kOtherHeads) {
      keys.Require(!architecture.ends_with(head), "architectures",
                   fmt::format("expected a language model, found {}", architecture),
                   "its head cannot be represented; without the key the network has one on the vocabulary, "
                   "with the logits' memory and, where embeddings are not tied, its weights");
    }
  }
  keys.Require(!keys.Has("peft_type"), "peft_type", "expected a network that is trained itself",
               "adapters beside its weights (LoRA) cannot be represented; network.trainable freezes parts of it");
  keys.Require(!keys.Has("quantization_config"), "quantization_config", "expected weights that are not quantized",
               "training beside quantized weights (QLoRA) cannot be represented; without the key weights have the "
               "dtype of the job");
}

// The classes of transformers, each with its defaults (src/transformers/models/<type>/configuration_<type>.py, the same
// from release 4.40 on, or since there is the type). `tie_word_embeddings` defaults to the base class's true where a
// class does not set it.

void ReadEqualBiases(Keys& keys, Decoder& d) {
  d.qkv_bias = keys.Truth("attention_bias", false);
  d.linear_bias = keys.Truth("mlp_bias", false);
  keys.Require(d.qkv_bias == d.linear_bias, "attention_bias",
               fmt::format("expected attention_bias ({}) and mlp_bias ({}) to be equal", d.qkv_bias, d.linear_bias),
               "a network with only one of them cannot be represented");
}

Decoder ReadErnie45(Keys& keys) {
  Decoder d = ReadDecoder(keys, {.hidden = 1024,
                                 .ffn = 3072,
                                 .layers = 18,
                                 .heads = 16,
                                 .kv_heads = 2,
                                 .vocabulary = 103424,
                                 .null_kv_heads = true,
                                 .tied_embeddings = true});
  ReadHeadSizeOrNull(keys, d, 128);
  d.qkv_bias = d.linear_bias = TruthOrNull(keys, "use_bias");
  return d;
}

Decoder ReadGemma(Keys& keys) {
  Decoder d = ReadDecoder(keys, {.hidden = 3072,
                                 .ffn = 24576,
                                 .layers = 28,
                                 .heads = 16,
                                 .kv_heads = 16,
                                 .vocabulary = 256000,
                                 .tied_embeddings = true});
  d.head_size = keys.Whole("head_dim", 256);
  d.causal = !TruthOrNull(keys, "use_bidirectional_attention");
  RequireNoAttentionBias(keys);
  return d;
}

Decoder ReadLlama(Keys& keys) {
  Decoder d = ReadDecoder(keys, {.ffn = 11008, .vocabulary = 32000, .null_kv_heads = true});
  ReadHeadSizeOrNull(keys, d);
  ReadEqualBiases(keys, d);
  return d;
}

/// Factors of the embedding, of what is added to the residual stream and of the logits make no tensors that stay, and
/// are passed over.
Decoder ReadGranite(Keys& keys) {
  Decoder d = ReadDecoder(keys, {.ffn = 11008, .vocabulary = 32000, .null_kv_heads = true});
  ReadHeadSize(keys, d);
  ReadEqualBiases(keys, d);
  return d;
}

Decoder ReadMistralLayers(Keys& keys, std::int64_t default_window) {
  Decoder d = ReadDecoder(keys, {.ffn = 14336, .kv_heads = 8, .vocabulary = 32000, .null_kv_heads = true});
  ReadHeadSizeOrNull(keys, d);
  ReadWindow(keys, d, default_window);
  return d;
}

Decoder ReadMistral(Keys& keys) { return ReadMistralLayers(keys, 4096); }

/// Its queries, keys and values are parts of one product, and so are the gate and what it multiplies: the latter keep
/// as many bytes as two products would.
Decoder ReadPhi3(Keys& keys) {
  Decoder d = ReadDecoder(keys, {.hidden = 3072, .ffn = 8192, .vocabulary = 32064, .null_kv_heads = true});
  d.qkv_views = true;
  ReadHeadSize(keys, d);
  ReadWindow(keys, d, 0);
  keys.Require(keys.Fraction("resid_pdrop", 0.0) == 0, "resid_pdrop", "expected 0",
               "dropout in the layers and none on the embedding cannot be represented");
  return d;
}

/// One layer of four does not rotate queries and keys (no_rope_layers); all are priced as if they did.
Decoder ReadSmolLm3(Keys& keys) {
  Decoder d = ReadDecoder(keys, {.hidden = 2048,
                                 .ffn = 11008,
                                 .layers = 36,
                                 .heads = 16,
                                 .kv_heads = 4,
                                 .vocabulary = 128256,
                                 .null_kv_heads = true,
                                 .tied_embeddings = true});
  ReadHeadSize(keys, d);
  ReadEqualBiases(keys, d);
  RequireNoWindow(keys, 0);
  return d;
}

Decoder ReadQwen2(Keys& keys) {
  Decoder d = ReadDecoder(keys, {.ffn = 22016, .kv_heads = 32, .vocabulary = 151936, .null_kv_heads = true});
  ReadHeadSize(keys, d);
  ReadUsedWindow(keys, d);
  d.qkv_bias = true;
  return d;
}

void ReadQwen3Attention(Keys& keys, Decoder& d) {
  d.qk_norm = true;
  RequireNoAttentionBias(keys);
}

Decoder ReadQwen3(Keys& keys) {
  constexpr std::int64_t kHeadSize = 128;  // whatever the hidden size is
  Decoder d = ReadDecoder(keys, {.ffn = 22016, .kv_heads = 32, .vocabulary = 151936, .null_kv_heads = true});
  d.head_size = keys.Whole("head_dim", kHeadSize);
  ReadUsedWindow(keys, d);
  ReadQwen3Attention(keys, d);
  return d;
}

Decoder ReadMixtral(Keys& keys) {
  Decoder d = ReadMistralLayers(keys, 0);
  ReadHuggingFaceExperts(keys, d.experts, "num_local_experts", 8, 2);
  d.experts.ffn = d.ffn;
  return d;
}

/// mlp_only_layers lists those that have none: here the first ones.
void ReadDenseLayers(Keys& keys, Decoder& d) {
  constexpr const char* kHint =
      "layers of which some have experts, and some behind them have none, cannot be represented";
  keys.Require(keys.Whole("decoder_sparse_step", 1) == 1, "decoder_sparse_step", "expected 1", kHint);
  const std::set<std::int64_t> dense = keys.Numbers("mlp_only_layers");
  d.experts.dense_layers = std::ssize(dense);
  keys.Require(dense.empty() || *dense.rbegin() + 1 == d.experts.dense_layers, "mlp_only_layers",
               "expected the first layers, counted from 0", kHint);
  RequireExpertsBehind(keys, d, "mlp_only_layers");
}

Decoder ReadQwen2Moe(Keys& keys) {
  Decoder d =
      ReadDecoder(keys, {.hidden = 2048, .ffn = 5632, .layers = 24, .heads = 16, .kv_heads = 16, .vocabulary = 151936});
  d.qkv_bias = keys.Truth("qkv_bias", true);
  ReadHeadSize(keys, d);
  RequireNoWindow(keys, 4096);
  ReadHuggingFaceExperts(keys, d.experts, "num_experts", 60, 4);
  d.experts.ffn = keys.Whole("moe_intermediate_size", 1408);
  d.experts.shared_ffn = keys.Whole("shared_expert_intermediate_size", 5632);
  d.experts.shared_gate = true;
  ReadDenseLayers(keys, d);
  return d;
}

Decoder ReadQwen3Moe(Keys& keys) {
  Decoder d = ReadDecoder(keys, {.hidden = 2048, .ffn = 6144, .layers = 24, .kv_heads = 4, .vocabulary = 151936});
  ReadHeadSize(keys, d);
  if (keys.Truth("use_sliding_window", false)) {  // of all layers
    ReadWindow(keys, d, 4096);
  }
  ReadQwen3Attention(keys, d);
  ReadHuggingFaceExperts(keys, d.experts, KeyOfExperts(keys), 128, 8);
  d.experts.ffn = keys.Whole("moe_intermediate_size", 768);
  ReadDenseLayers(keys, d);
  return d;
}

Decoder ReadGlm4Moe(Keys& keys) {
  Decoder d = ReadDecoder(keys, {.ffn = 10944, .layers = 46, .heads = 96, .kv_heads = 8, .vocabulary = 151552});
  ReadHeadSize(keys, d);
  d.qkv_bias = keys.Truth("attention_bias", false);  // the output's projection has none
  d.qk_norm = keys.Truth("use_qk_norm", false);
  ReadRoutedExperts(keys, d, {.count = 128, .per_token = 8, .ffn = 1408, .shared = 1, .dense_layers = 1});
  return d;
}

struct ModelType {
  std::string_view name;
  Decoder (*read)(Keys& keys);
  bool has_experts = false;
  Decoder::NormKernel eager_norms = Decoder::NormKernel::eager;  ///< of those that normalise by RMS
};

/// Statistics, weight and product in fp32.
constexpr Decoder::NormKernel kFp32Weight = Decoder::NormKernel::eager_fp32_weight;

constexpr ModelType kModelTypes[] = {
    {"deepseek_v2", &ReadDeepseekV2, true},
    {"deepseek_v3", &ReadDeepseekV3, true},
    {"ernie4_5", &ReadErnie45},
    {"exaone4", &ReadExaone4},
    {"gemma", &ReadGemma, false, kFp32Weight},
    {"gemma3_text", &ReadGemma3Text, false, kFp32Weight},
    {"glm4", &ReadGlm4},
    {"glm4_moe", &ReadGlm4Moe, true},
    {"gpt2", &ReadGpt2},
    {"gpt_neox", &ReadGptNeox},
    {"granite", &ReadGranite},
    {"kimi_k2", &ReadDeepseekV3, true},
    {"llama", &ReadLlama},
    {"minimax_m2", &ReadMiniMaxM2, true},
    {"mistral", &ReadMistral},
    {"mixtral", &ReadMixtral, true},
    {"olmo2", &ReadOlmo2, false, kFp32Weight},
    {"olmo3", &ReadOlmo3, false, kFp32Weight},
    {"olmoe", &ReadOlmoe, true},
    {"opt", &ReadOpt},
    {"phi3", &ReadPhi3},
    {"qwen2", &ReadQwen2},
    {"qwen2_moe", &ReadQwen2Moe, true},
    {"qwen3", &ReadQwen3},
    {"qwen3_moe", &ReadQwen3Moe, true},
    {"smollm3", &ReadSmolLm3},
    {"starcoder2", &ReadStarcoder2},
};

std::string NamesOf(bool (*counts)(const ModelType&)) {
  std::vector<std::string_view> names;
  for (const ModelType& type : kModelTypes) {
    if (counts(type)) {
      names.push_back(type.name);
    }
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

/// What a file is refused for whose model type has no experts here: a llama4's, whatever else it is refused for.
void RequireNoExperts(Keys& keys) {
  for (const char* const experts : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    keys.Require(keys.WholeOrNull(experts, 0, 0, 0) <= 1, experts, "expected a network without experts",
                 fmt::format("of networks with experts those of these model_types are read: {}; network.experts of a "
                             "job describes others",
                             NamesOf([](const ModelType& type) { return type.has_experts; })));
  }
}

std::string NetworkName(std::string_view origin) {
  const std::filesystem::path path = std::filesystem::path(origin).lexically_normal();
  const bool plain = path.stem() == "config" && path.has_parent_path() && path.parent_path().has_filename();
  return (plain ? path.parent_path().filename() : path.stem()).string();
}

Result<Json> ParseJson(std::string_view text, std::string_view origin) {
  try {
    return Json::parse(text);
  } catch (const Json::exception& exception) {
    const auto* parse_error = dynamic_cast<const Json::parse_error*>(&exception);
    const std::size_t end = parse_error == nullptr ? 0 : std::min(parse_error->byte, text.size());
    const auto line = std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '\n') + 1;
    return Error{ErrorCode::bad_input, fmt::format("{}:{}", origin, line), "expected valid JSON",
                 "is the file complete, and is every bracket and quote closed?"};
  }
}

Result<Network> Read(const Json& json, const ConfigValue& places, std::string_view origin) {
  if (!json.is_object()) {
    return ErrorAt(places, {}, "expected a JSON object", "a config.json holds the keys of one model");
  }
  Keys keys(json, places);
  RequireLanguageModel(keys);
  const std::string type = keys.Word("model_type", "");
  TIDEMARK_TRY(keys.status());
  const auto known = std::find_if(std::begin(kModelTypes), std::end(kModelTypes),
                                  [&](const ModelType& candidate) { return candidate.name == type; });
  if (known == std::end(kModelTypes) || !known->has_experts) {
    RequireNoExperts(keys);
    TIDEMARK_TRY(keys.status());
  }
  if (known == std::end(kModelTypes)) {
    // No nearest name: a program wrote the type, and gemma is no misspelled gpt.
    const std::string found = type.empty() ? "none" : fmt::format("'{}'", type);
    keys.Require(false, "model_type",
                 fmt::format("expected one of {}, found {}", NamesOf([](const ModelType&) { return true; }), found),
                 keys.Has("text_config") ? "its text_config, as a file of its own, may be one of these"
                                         : "describe the network with inline fields");
    return keys.status().error();
  }
  Network network;
  network.name = NetworkName(origin);
  network.shape = known->read(keys);
  network.eager_norms = known->eager_norms;
  keys.RequireNoSlips();
  TIDEMARK_TRY(keys.status());
  return network;
}

bool Recognises(const ConfigValue& root) {
  const ConfigValue* type = root.Find("model_type");
  return type != nullptr && type->kind == ConfigValue::Kind::scalar && root.Find("network") == nullptr &&
         root.Find("per_device_train_batch_size") == nullptr && root.Find("base_model") == nullptr;
}

/// As a job, the file says what the network is and nothing else.
Result<Settings> ReadAsJob(const ConfigValue& root, const Settings& /*given*/) {
  const std::string place = root.source.substr(0, root.source.rfind(':'));
  Settings settings;
  settings["network"] = MakeScalar(place, root.source);
  settings["network"].where = root.where;
  return settings;
}

}  // namespace

Result<Network> ReadHuggingFaceConfig(std::string_view text, std::string_view origin) {
  TIDEMARK_ASSIGN(const Json json, ParseJson(text, origin));
  TIDEMARK_ASSIGN(const ConfigValue places, ParseConfig(text, std::string(origin)));
  return Read(json, places, origin);
}

bool LooksLikeHuggingFaceConfig(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  return first != std::string_view::npos && text[first] == '{' && text.find("\"model_type\"") != std::string_view::npos;
}

ConfigFormat ConfigHuggingface() {
  return {"huggingface", "Hugging Face config.json: the network; machine, strategy and lengths come from --set",
          &Recognises, &ReadAsJob};
}

}  // namespace tidemark
