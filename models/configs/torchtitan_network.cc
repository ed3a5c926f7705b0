// SPDX-License-Identifier: Apache-2.0
#include "models/configs/torchtitan_network.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/configs/torchtitan_attention.h"
#include "models/configs/torchtitan_experts.h"
#include "models/configs/torchtitan_module.h"
#include "models/configs/translation.h"

namespace tidemark {
namespace {

// Fields of modules beside these are of other modules. All have an initialisation and a division over ranks.
constexpr std::string_view kOfModel[] = {"dim",    "vocab_size",          "lm_head",   "tok_embeddings", "norm",
                                         "layers", "enable_weight_tying", "mtp_layers"};
constexpr std::string_view kOfLayer[] = {"attention", "feed_forward", "moe", "attention_norm", "ffn_norm"};
constexpr std::string_view kOfEmbedding[] = {"num_embeddings", "embedding_dim"};

struct Layer {
  SavedAttention attention;
  std::int64_t ffn = 0;  ///< of a layer without experts
  SavedExperts experts;
  friend bool operator==(const Layer&, const Layer&) = default;
};

Result<Layer> ReadLayer(const TorchtitanModule& module, std::int64_t hidden) {
  TIDEMARK_TRY(module.Check(kOfLayer));
  Layer layer;
  TIDEMARK_ASSIGN(layer.attention, ReadSavedAttention(module, hidden));
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

/// Of each layer's rotation, whose class is not in the file: Qwen3's is CosSinRoPE, that of others ComplexRoPE.
std::string TableFormOf(const std::string& model) { return model == "qwen3" ? "elements" : "pairs"; }

/// All are alike, but that the first ones may have no experts.
struct Layers {
  std::int64_t count = 0, dense = 0;
  Layer first, last;
};

std::string_view Difference(const Layer& layer, const Layer& other) {
  const bool other_part = layer.experts == other.experts;
  return layer.attention != other.attention ? "attention" : other_part ? "feed-forward part" : "experts";
}

Result<Layers> ReadLayers(const TorchtitanModule& model, std::int64_t hidden) {
  const ConfigValue* saved = model.value().Find("layers");
  if (saved == nullptr || saved->items.empty()) {
    return model.Refuse("layers", "expected a list of layers");
  }
  std::vector<Layer> all;
  for (const ConfigValue& item : saved->items) {
    const TorchtitanModule module{item, model.PathOf(fmt::format("layers[{}]", all.size()))};
    TIDEMARK_ASSIGN(const Layer layer, ReadLayer(module, hidden));
    all.push_back(layer);
  }
  const auto has_experts = [](const Layer& layer) { return layer.experts.count > 0; };
  const auto sparse = std::find_if(all.begin(), all.end(), has_experts);
  const std::int64_t dense = sparse - all.begin();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t like = static_cast<std::int64_t>(i) < dense ? 0 : static_cast<std::size_t>(dense);
    const bool other = all[i].attention != all.front().attention;
    if (all[i] != all[like] || other) {
      const std::size_t than = other ? 0 : like;
      return model.Refuse("layers",
                          fmt::format("layer {} is another than layer {} in its {}, which is not supported by "
                                      "this version",
                                      i, than, Difference(all[i], all[than])));
    }
  }
  return Layers{std::ssize(all), sparse == all.end() ? 0 : dense, all.front(), all.back()};
}

}  // namespace

Status ReadTorchtitanNetwork(const ConfigValue& spec, Settings& settings) {
  const TorchtitanModule root{spec, "model_spec"};
  TIDEMARK_ASSIGN(const TorchtitanModule model, root.At("model", kOfModel));
  if (const ConfigValue* more = model.value().Find("mtp_layers"); more != nullptr && !more->items.empty()) {
    return model.Refuse("mtp_layers", "multi-token prediction is not supported by this version");
  }
  TIDEMARK_ASSIGN(const std::int64_t hidden, model.Whole("dim"));
  TIDEMARK_ASSIGN(const std::int64_t vocabulary, model.Whole("vocab_size"));
  TIDEMARK_ASSIGN(const Layers layers, ReadLayers(model, hidden));
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
  const SavedAttention& attention = layers.first.attention;
  std::vector<std::pair<const char*, std::string>> said = {
      {"network.name", fmt::format("{} {}", word("name"), word("flavor"))},
      {"network.layers", std::to_string(layers.count)},
      {"network.hidden", std::to_string(hidden)},
      {"network.heads", std::to_string(attention.heads)},
      {"network.kv_heads", std::to_string(attention.kv_heads)},
      {"network.head_size", std::to_string(attention.head_size)},
      {"network.vocabulary", std::to_string(vocabulary)},
      {"network.qk_norm", truth(attention.qk_norm)},
      {"network.qkv_bias", truth(attention.bias)},
      {"network.tied_embeddings", truth(tied)},
  };
  if (const auto& [kv_rank, q_rank, rope, value] = attention.latent; kv_rank > 0) {
    said.insert(said.end(), {{"network.latent_attention.kv_lora_rank", std::to_string(kv_rank)},
                             {"network.latent_attention.q_lora_rank", std::to_string(q_rank)},
                             {"network.latent_attention.rope_head_size", std::to_string(rope)},
                             {"network.latent_attention.value_head_size", std::to_string(value)}});
  } else {
    said.emplace_back("packing.qkv", attention.packed ? "packed" : "separate");
  }
  const auto& [count, per_token, width_of_each, shared] = layers.last.experts;
  if (count > 0) {
    said.insert(said.end(), {{"network.experts.count", std::to_string(count)},
                             {"network.experts.per_token", std::to_string(per_token)},
                             {"network.experts.ffn", std::to_string(width_of_each)},
                             {"network.experts.shared_ffn", std::to_string(shared)},
                             {"network.experts.router_fp32", "true"},
                             {"network.experts.layer", "torchtitan"},
                             {"network.experts.dense_layers", std::to_string(layers.dense)}});
  }
  if (layers.first.ffn > 0) {
    said.emplace_back("network.ffn", std::to_string(layers.first.ffn));
  }
  for (const auto& [key, text] : said) {
    settings[key] = Retold(model.value(), text);
  }
  const ConfigValue* name = spec.Find("name");
  settings["network.rotary_table"] = Retold(name == nullptr ? spec : *name, TableFormOf(word("name")));
  return Done{};
}

}  // namespace tidemark
