// SPDX-License-Identifier: Apache-2.0
#include "models/configs/huggingface_deepseek.h"

#include <fmt/format.h>

#include "models/configs/huggingface_experts.h"

namespace tidemark {
namespace {

/// What DeepseekV2Config and DeepseekV3Config differ in, beside their experts.
struct DeepseekDefaults {
  std::int64_t hidden, ffn, layers, heads, vocabulary;
};

/// A head of queries and keys has two parts, of which one is rotated. Without a rank, which is null then and not
/// missing, queries are made in one product.
Decoder ReadDeepseek(HuggingFaceKeys& keys, const DeepseekDefaults& defaults) {
  Decoder d;
  d.hidden = keys.Whole("hidden_size", defaults.hidden);
  d.ffn = keys.Whole("intermediate_size", defaults.ffn);
  d.layers = keys.Whole("num_hidden_layers", defaults.layers);
  d.heads = keys.Whole("num_attention_heads", defaults.heads);
  d.kv_heads = d.heads;
  d.latent.kv_lora_rank = keys.Whole("kv_lora_rank", 512);
  d.latent.q_lora_rank = keys.WholeOrNull("q_lora_rank", 1536, 0);
  d.latent.rope_head_size = keys.Whole("qk_rope_head_dim", 64);
  d.latent.value_head_size = keys.Whole("v_head_dim", 128);
  d.head_size = keys.Whole("qk_nope_head_dim", 128) + d.latent.rope_head_size;
  d.vocabulary = keys.Whole("vocab_size", defaults.vocabulary);
  d.tied_embeddings = keys.Truth("tie_word_embeddings", false);
  d.attention_dropout = keys.Fraction("attention_dropout", 0.0);
  keys.Require(!keys.Truth("attention_bias", false), "attention_bias", "expected false",
               "multi-latent attention with biases cannot be represented");
  keys.Require(keys.WholeOrNull("num_key_value_heads", d.heads, d.heads) == d.heads, "num_key_value_heads",
               fmt::format("expected as many as num_attention_heads ({})", d.heads),
               "in multi-latent attention each query has a key of its own");
  keys.Require(keys.WholeOrNull("moe_layer_freq", 1, 1) == 1, "moe_layer_freq", "expected 1",
               "layers of which some have experts, and some behind them have none, cannot be represented");
  return d;
}

}  // namespace

Decoder ReadDeepseekV2(HuggingFaceKeys& keys) {
  Decoder d = ReadDeepseek(keys, {.hidden = 4096, .ffn = 11008, .layers = 32, .heads = 32, .vocabulary = 102400});
  keys.Require(keys.Has("num_experts_per_tok"), "num_experts_per_tok", "is missing", "the class has no default for it");
  keys.Require(!keys.Truth("mlp_bias", false), "mlp_bias", "expected false",
               "experts whose linear layers have biases cannot be represented");
  ReadRoutedExperts(keys, d, {.count = 64, .per_token = 1, .ffn = 1407, .shared = 2, .dense_layers = 0});
  return d;
}

Decoder ReadDeepseekV3(HuggingFaceKeys& keys) {
  Decoder d = ReadDeepseek(keys, {.hidden = 7168, .ffn = 18432, .layers = 61, .heads = 128, .vocabulary = 129280});
  ReadRoutedExperts(keys, d, {.count = 256, .per_token = 8, .ffn = 2048, .shared = 1, .dense_layers = 3});
  return d;
}

}  // namespace tidemark
