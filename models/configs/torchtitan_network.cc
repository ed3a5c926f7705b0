// SPDX-License-Identifier: Apache-2.0
#include "models/configs/torchtitan_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "models/configs/field.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

using Names = std::span<const std::string_view>;

// Fields of modules beside these are of other modules. All have an initialisation and a division over ranks.
constexpr std::string_view kOfModel[] = {"dim",    "vocab_size",          "lm_head",   "tok_embeddings", "norm",
                                         "layers", "enable_weight_tying", "mtp_layers"};
constexpr std::string_view kOfLayer[] = {"attention", "feed_forward", "moe", "attention_norm", "ffn_norm"};
constexpr std::string_view kOfAttention[] = {"n_heads", "inner_attention", "dim",      "qkv_linear", "wo",
                                             "qk_norm", "n_kv_heads",      "head_dim", "rope"};
constexpr std::string_view kOfProjections[] = {"head_dim", "n_heads", "n_kv_heads", "wqkv", "wq", "wkv"};
constexpr std::string_view kOfFeedForward[] = {"w1", "w2", "w3"};
constexpr std::string_view kOfLinear[] = {"in_features", "out_features", "bias"};
constexpr std::string_view kOfKernel[] = {"block_size", "kernel_options", "window_size"};
constexpr std::string_view kOfEmbedding[] = {"num_embeddings", "embedding_dim"};
constexpr std::string_view kOfNorm[] = {"normalized_shape", "eps", "elementwise_affine"};
constexpr std::string_view kOfAll[] = {"param_init", "sharding_config"};

constexpr const char* kHint = "name a network instead: --set network=NAME (`tidemark list networks`)";

/// A module by its path, for errors.
struct Module {
  const ConfigValue& value;
  std::string path;

  bool Has(std::string_view key) const {
    const ConfigValue* found = value.Find(key);
    return found != nullptr && !found->is_null();
  }
  std::string PathOf(std::string_view key) const { return fmt::format("{}.{}", path, key); }
  Error Refuse(std::string_view key, std::string message, std::string hint = kHint) const {
    const ConfigValue* found = value.Find(key);
    return ErrorAt(found == nullptr ? value : *found, PathOf(key), std::move(message), std::move(hint));
  }

  Status Check(Names known) const {
    if (!value.is_map()) {
      return ErrorAt(value, path, fmt::format("expected a module, found {}", Describe(value)), kHint);
    }
    for (const ConfigValue::Entry& field : value.fields) {
      const auto is = [&](std::string_view name) { return name == field.key; };
      if (!std::ranges::any_of(known, is) && !std::ranges::any_of(kOfAll, is)) {
        return Refuse(field.key, "belongs to a kind of module that this version does not know");
      }
    }
    return Done{};
  }

  Result<Module> At(std::string_view key, Names known) const {
    const ConfigValue* found = value.Find(key);
    if (found == nullptr) {
      return Refuse(key, "expected a module, found nothing");
    }
    Module module{*found, PathOf(key)};
    TIDEMARK_TRY(module.Check(known));
    return module;
  }

  Result<std::int64_t> Whole(std::string_view key, std::int64_t most = std::int64_t{1} << 40) const {
    const ConfigValue* found = value.Find(key);
    if (found == nullptr || found->is_null()) {
      return Refuse(key, "expected a whole number, found nothing");
    }
    return WholeNumber{1, most}.Read(*found).At(fmt::format("{}: {}", found->where, PathOf(key)));
  }
  Result<std::int64_t> WholeOr(std::string_view key, std::int64_t absent) const {
    return Has(key) ? Whole(key) : Result<std::int64_t>(absent);
  }
  bool Is(std::string_view key, std::string_view text) const {
    const ConfigValue* found = value.Find(key);
    return found != nullptr && IsSameValue(found->text, text);
  }
};

/// What one layer is. All of them are the same.
struct Layer {
  std::int64_t heads = 0, kv_heads = 0, head_size = 0, ffn = 0;
  bool qk_norm = false, packed = false, bias = false;
  friend bool operator==(const Layer&, const Layer&) = default;
};

/// A linear layer of just these sizes; whether it has a bias.
Result<bool> ReadLinear(const Module& of, std::string_view key, std::int64_t in, std::int64_t out) {
  TIDEMARK_ASSIGN(const Module linear, of.At(key, kOfLinear));
  TIDEMARK_ASSIGN(const std::int64_t inputs, linear.Whole("in_features"));
  TIDEMARK_ASSIGN(const std::int64_t outputs, linear.Whole("out_features"));
  if (inputs != in || outputs != out) {
    return of.Refuse(
        key, fmt::format("expected {} inputs and {} outputs, as the rest of the network has it, found {} and {}", in,
                         out, inputs, outputs));
  }
  return linear.Is("bias", "true");
}

Status CheckPlain(const Module& of, std::string_view key, std::int64_t in, std::int64_t out) {
  TIDEMARK_ASSIGN(const bool bias, ReadLinear(of, key, in, out));
  if (bias) {
    return of.Refuse(key, "has a bias, which this version knows of projections to queries, keys and values only");
  }
  return Done{};
}

Status CheckNorm(const Module& of, std::string_view key, std::int64_t width) {
  TIDEMARK_ASSIGN(const Module norm, of.At(key, kOfNorm));
  TIDEMARK_ASSIGN(const std::int64_t found, norm.Whole("normalized_shape"));
  if (found != width || norm.Is("elementwise_affine", "false")) {
    return of.Refuse(key, fmt::format("expected a norm of {} numbers with a weight", width));
  }
  return Done{};
}

Status ReadProjections(const Module& attention, std::int64_t hidden, Layer& layer) {
  TIDEMARK_ASSIGN(const Module projections, attention.At("qkv_linear", kOfProjections));
  TIDEMARK_ASSIGN(layer.head_size, projections.Whole("head_dim"));
  layer.packed = projections.Has("wqkv");
  const std::int64_t q = layer.heads * layer.head_size, kv = layer.kv_heads * layer.head_size;
  if (layer.packed) {
    TIDEMARK_ASSIGN(layer.bias, ReadLinear(projections, "wqkv", hidden, q + 2 * kv));
    return Done{};
  }
  TIDEMARK_ASSIGN(layer.bias, ReadLinear(projections, "wq", hidden, q));
  TIDEMARK_ASSIGN(const bool other, ReadLinear(projections, "wkv", hidden, kv));
  if (other != layer.bias) {
    return projections.Refuse("wkv", "expected biases of queries, keys and values, or of none");
  }
  return Done{};
}

Status ReadAttention(const Module& of, std::int64_t hidden, Layer& layer) {
  const ConfigValue* attention_value = of.value.Find("attention");
  if (attention_value != nullptr && attention_value->Find("kv_lora_rank") != nullptr) {
    return of.Refuse("attention", "multi-latent attention as torchtitan computes it is not supported by this version",
                     "price it as Hugging Face's models compute it: --set network=deepseek-v3");
  }
  TIDEMARK_ASSIGN(const Module attention, of.At("attention", kOfAttention));
  TIDEMARK_ASSIGN(layer.heads, attention.Whole("n_heads"));
  TIDEMARK_ASSIGN(layer.kv_heads, attention.WholeOr("n_kv_heads", layer.heads));
  TIDEMARK_TRY(ReadProjections(attention, hidden, layer));
  TIDEMARK_TRY(CheckPlain(attention, "wo", layer.heads * layer.head_size, hidden));
  if (!attention.Has("rope")) {
    return attention.Refuse("rope", "expected a rotation of queries and keys, found nothing");
  }
  TIDEMARK_ASSIGN(const Module kernel, attention.At("inner_attention", kOfKernel));
  const ConfigValue* window = kernel.value.Find("window_size");
  if (window != nullptr && (window->items.empty() || !IsSameValue(window->items.front().text, "-1"))) {
    return kernel.Refuse("window_size", "sliding windows are not supported by this version");
  }
  layer.qk_norm = attention.Has("qk_norm");
  if (layer.qk_norm) {
    TIDEMARK_TRY(CheckNorm(attention, "qk_norm", layer.head_size));
  }
  return Done{};
}

Result<Layer> ReadLayer(const Module& module, std::int64_t hidden) {
  TIDEMARK_TRY(module.Check(kOfLayer));
  Layer layer;
  if (module.Has("moe")) {
    return module.Refuse("moe",
                         "layers with experts as torchtitan computes them, with routed outputs in fp32, are not "
                         "supported by this version",
                         "price them as Megatron-LM computes them: --set network=qwen3-30b-a3b (`tidemark list "
                         "networks`)");
  }
  TIDEMARK_TRY(ReadAttention(module, hidden, layer));
  TIDEMARK_ASSIGN(const Module ffn, module.At("feed_forward", kOfFeedForward));
  TIDEMARK_ASSIGN(const Module first, ffn.At("w1", kOfLinear));
  TIDEMARK_ASSIGN(layer.ffn, first.Whole("out_features"));
  TIDEMARK_TRY(CheckPlain(ffn, "w1", hidden, layer.ffn));
  TIDEMARK_TRY(CheckPlain(ffn, "w2", layer.ffn, hidden));
  TIDEMARK_TRY(CheckPlain(ffn, "w3", hidden, layer.ffn));
  for (const char* key : {"attention_norm", "ffn_norm"}) {
    TIDEMARK_TRY(CheckNorm(module, key, hidden));
  }
  return layer;
}

}  // namespace

Status ReadTorchtitanNetwork(const ConfigValue& spec, Settings& settings) {
  const Module root{spec, "model_spec"};
  TIDEMARK_ASSIGN(const Module model, root.At("model", kOfModel));
  const ConfigValue* layers = model.value.Find("layers");
  if (layers == nullptr || layers->items.empty()) {
    return model.Refuse("layers", "expected a list of layers");
  }
  if (const ConfigValue* more = model.value.Find("mtp_layers"); more != nullptr && !more->items.empty()) {
    return model.Refuse("mtp_layers", "multi-token prediction is not supported by this version");
  }
  TIDEMARK_ASSIGN(const std::int64_t hidden, model.Whole("dim"));
  TIDEMARK_ASSIGN(const std::int64_t vocabulary, model.Whole("vocab_size"));
  TIDEMARK_ASSIGN(const Layer first, ReadLayer({layers->items.front(), model.PathOf("layers[0]")}, hidden));
  for (std::size_t i = 1; i < layers->items.size(); ++i) {
    TIDEMARK_ASSIGN(const Layer other,
                    ReadLayer({layers->items[i], model.PathOf(fmt::format("layers[{}]", i))}, hidden));
    if (other != first) {
      return model.Refuse("layers", fmt::format("layer {} is another than layer 0, which is not supported by this "
                                                "version",
                                                i));
    }
  }
  TIDEMARK_TRY(CheckPlain(model, "lm_head", hidden, vocabulary));
  TIDEMARK_ASSIGN(const Module embedding, model.At("tok_embeddings", kOfEmbedding));
  TIDEMARK_ASSIGN(const std::int64_t rows, embedding.Whole("num_embeddings"));
  TIDEMARK_ASSIGN(const std::int64_t width, embedding.Whole("embedding_dim"));
  if (rows != vocabulary || width != hidden) {
    return model.Refuse("tok_embeddings",
                        fmt::format("expected {} rows of {}, found {} of {}", vocabulary, hidden, rows, width));
  }
  TIDEMARK_TRY(CheckNorm(model, "norm", hidden));
  const auto word = [&](std::string_view key) {
    const ConfigValue* found = spec.Find(key);
    return found == nullptr ? std::string() : found->text;
  };
  const auto truth = [](bool is) { return std::string(is ? "true" : "false"); };
  const std::pair<const char*, std::string> said[] = {
      {"network.name", fmt::format("{} {}", word("name"), word("flavor"))},
      {"network.layers", std::to_string(layers->items.size())},
      {"network.hidden", std::to_string(hidden)},
      {"network.ffn", std::to_string(first.ffn)},
      {"network.heads", std::to_string(first.heads)},
      {"network.kv_heads", std::to_string(first.kv_heads)},
      {"network.head_size", std::to_string(first.head_size)},
      {"network.vocabulary", std::to_string(vocabulary)},
      {"network.qk_norm", truth(first.qk_norm)},
      {"network.qkv_bias", truth(first.bias)},
      {"network.tied_embeddings", truth(model.Is("enable_weight_tying", "true"))},
      {"packing.qkv", first.packed ? "packed" : "separate"},
  };
  for (const auto& [key, text] : said) {
    settings[key] = Retold(model.value, text);
  }
  return Done{};
}

}  // namespace tidemark
