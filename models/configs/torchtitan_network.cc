// SPDX-License-Identifier: Apache-2.0
#include "models/configs/torchtitan_network.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/configs/torchtitan_experts.h"
#include "models/configs/torchtitan_module.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

// Fields of modules beside these are of other modules. All have an initialisation and a division over ranks.
constexpr std::string_view kOfModel[] = {"dim",    "vocab_size",          "lm_head",   "tok_embeddings", "norm",
                                         "layers", "enable_weight_tying", "mtp_layers"};
constexpr std::string_view kOfLayer[] = {"attention", "feed_forward", "moe", "attention_norm", "ffn_norm"};
constexpr std::string_view kOfAttention[] = {"n_heads", "inner_attention", "dim",      "qkv_linear", "wo",
                                             "qk_norm", "n_kv_heads",      "head_dim", "rope"};
constexpr std::string_view kOfProjections[] = {"head_dim", "n_heads", "n_kv_heads", "wqkv", "wq", "wkv"};
constexpr std::string_view kOfKernel[] = {"block_size", "kernel_options", "window_size"};
constexpr std::string_view kOfEmbedding[] = {"num_embeddings", "embedding_dim"};

/// What one layer is. All of them are the same.
struct Layer {
  std::int64_t heads = 0, kv_heads = 0, head_size = 0, ffn = 0;
  bool qk_norm = false, packed = false, bias = false;
  SavedExperts experts;  ///< of none: a dense layer
  friend bool operator==(const Layer&, const Layer&) = default;
};

Status ReadProjections(const TorchtitanModule& attention, std::int64_t hidden, Layer& layer) {
  TIDEMARK_ASSIGN(const TorchtitanModule projections, attention.At("qkv_linear", kOfProjections));
  TIDEMARK_ASSIGN(layer.head_size, projections.Whole("head_dim"));
  TIDEMARK_TRY(projections.CheckWhole("n_heads", layer.heads));
  TIDEMARK_TRY(projections.CheckWhole("n_kv_heads", layer.kv_heads));
  TIDEMARK_TRY(attention.CheckWhole("head_dim", layer.head_size));
  TIDEMARK_TRY(attention.CheckWhole("dim", hidden));
  layer.packed = projections.Has("wqkv");
  const std::int64_t q = layer.heads * layer.head_size, kv = layer.kv_heads * layer.head_size;
  if (layer.packed) {
    TIDEMARK_ASSIGN(layer.bias, projections.Linear("wqkv", hidden, q + 2 * kv));
    return Done{};
  }
  TIDEMARK_ASSIGN(layer.bias, projections.Linear("wq", hidden, q));
  TIDEMARK_ASSIGN(const bool other, projections.Linear("wkv", hidden, kv));
  if (other != layer.bias) {
    return projections.Refuse("wkv", "expected biases of queries, keys and values, or of none");
  }
  return Done{};
}

Status ReadAttention(const TorchtitanModule& of, std::int64_t hidden, Layer& layer) {
  const ConfigValue* attention_value = of.value().Find("attention");
  if (attention_value != nullptr && attention_value->Find("kv_lora_rank") != nullptr) {
    return of.Refuse("attention", "multi-latent attention as torchtitan computes it is not supported by this version",
                     "price it as Hugging Face's models compute it: --set network=deepseek-v3");
  }
  TIDEMARK_ASSIGN(const TorchtitanModule attention, of.At("attention", kOfAttention));
  TIDEMARK_ASSIGN(layer.heads, attention.Whole("n_heads"));
  TIDEMARK_ASSIGN(layer.kv_heads, attention.WholeOr("n_kv_heads", layer.heads));
  TIDEMARK_TRY(ReadProjections(attention, hidden, layer));
  TIDEMARK_TRY(attention.CheckLinear("wo", layer.heads * layer.head_size, hidden));
  if (!attention.Has("rope")) {
    return attention.Refuse("rope", "expected a rotation of queries and keys, found nothing");
  }
  TIDEMARK_ASSIGN(const TorchtitanModule kernel, attention.At("inner_attention", kOfKernel));
  const ConfigValue* window = kernel.value().Find("window_size");
  if (window != nullptr && (window->items.empty() || !IsSameValue(window->items.front().text, "-1"))) {
    return kernel.Refuse("window_size", "sliding windows are not supported by this version");
  }
  layer.qk_norm = attention.Has("qk_norm");
  if (layer.qk_norm) {
    TIDEMARK_TRY(attention.CheckNorm("qk_norm", layer.head_size));
  }
  return Done{};
}

Result<Layer> ReadLayer(const TorchtitanModule& module, std::int64_t hidden) {
  TIDEMARK_TRY(module.Check(kOfLayer));
  Layer layer;
  TIDEMARK_TRY(ReadAttention(module, hidden, layer));
  if (module.Has("moe") && module.Has("feed_forward")) {
    return module.Refuse("feed_forward", "stands beside moe: expected one of the two, and null for the other");
  }
  if (module.Has("moe")) {
    TIDEMARK_ASSIGN(layer.experts, ReadSavedExperts(module, hidden));
  } else {
    TIDEMARK_ASSIGN(layer.ffn, module.FeedForwardWidth("feed_forward", hidden));
  }
  for (const char* key : {"attention_norm", "ffn_norm"}) {
    TIDEMARK_TRY(module.CheckNorm(key, hidden));
  }
  return layer;
}

}  // namespace

Status ReadTorchtitanNetwork(const ConfigValue& spec, Settings& settings) {
  const TorchtitanModule root{spec, "model_spec"};
  TIDEMARK_ASSIGN(const TorchtitanModule model, root.At("model", kOfModel));
  const ConfigValue* layers = model.value().Find("layers");
  if (layers == nullptr || layers->items.empty()) {
    return model.Refuse("layers", "expected a list of layers");
  }
  if (const ConfigValue* more = model.value().Find("mtp_layers"); more != nullptr && !more->items.empty()) {
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
  TIDEMARK_TRY(model.CheckLinear("lm_head", hidden, vocabulary));
  TIDEMARK_ASSIGN(const TorchtitanModule embedding, model.At("tok_embeddings", kOfEmbedding));
  TIDEMARK_ASSIGN(const std::int64_t rows, embedding.Whole("num_embeddings"));
  TIDEMARK_ASSIGN(const std::int64_t width, embedding.Whole("embedding_dim"));
  if (rows != vocabulary || width != hidden) {
    return model.Refuse("tok_embeddings",
                        fmt::format("expected {} rows of {}, found {} of {}", vocabulary, hidden, rows, width));
  }
  TIDEMARK_TRY(model.CheckNorm("norm", hidden));
  TIDEMARK_ASSIGN(const bool tied, model.IsTrue("enable_weight_tying"));
  const auto word = [&](std::string_view key) {
    const ConfigValue* found = spec.Find(key);
    return found == nullptr ? std::string() : found->text;
  };
  const auto truth = [](bool is) { return std::string(is ? "true" : "false"); };
  std::vector<std::pair<const char*, std::string>> said = {
      {"network.name", fmt::format("{} {}", word("name"), word("flavor"))},
      {"network.layers", std::to_string(layers->items.size())},
      {"network.hidden", std::to_string(hidden)},
      {"network.heads", std::to_string(first.heads)},
      {"network.kv_heads", std::to_string(first.kv_heads)},
      {"network.head_size", std::to_string(first.head_size)},
      {"network.vocabulary", std::to_string(vocabulary)},
      {"network.qk_norm", truth(first.qk_norm)},
      {"network.qkv_bias", truth(first.bias)},
      {"network.tied_embeddings", truth(tied)},
      {"packing.qkv", first.packed ? "packed" : "separate"},
  };
  const auto& [count, per_token, width_of_each, shared] = first.experts;
  if (count > 0) {
    said.insert(said.end(), {{"network.experts.count", std::to_string(count)},
                             {"network.experts.per_token", std::to_string(per_token)},
                             {"network.experts.ffn", std::to_string(width_of_each)},
                             {"network.experts.shared_ffn", std::to_string(shared)},
                             {"network.experts.router_fp32", "true"},
                             {"network.experts.layer", "torchtitan"}});
  } else {
    said.emplace_back("network.ffn", std::to_string(first.ffn));
  }
  for (const auto& [key, text] : said) {
    settings[key] = Retold(model.value(), text);
  }
  return Done{};
}

}  // namespace tidemark
