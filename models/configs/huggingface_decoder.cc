// SPDX-License-Identifier: Apache-2.0
#include "models/configs/huggingface_decoder.h"

#include <fmt/format.h>

namespace tidemark {
namespace {

std::int64_t EvenHeadSize(const Decoder& d) { return d.hidden / d.heads; }

void SetHeadSize(HuggingFaceKeys& keys, Decoder& d, std::int64_t head_size) {
  d.head_size = head_size;
  keys.Require(d.head_size > 0, "num_attention_heads",
               fmt::format("expected at most hidden_size ({}) heads, found {}", d.hidden, d.heads));
}

}  // namespace

Decoder ReadDecoder(HuggingFaceKeys& keys, const DecoderDefaults& defaults) {
  constexpr const char* kKvHeads = "num_key_value_heads";
  Decoder d;
  d.hidden = keys.Whole("hidden_size", defaults.hidden);
  d.ffn = keys.Whole("intermediate_size", defaults.ffn);
  d.layers = keys.Whole("num_hidden_layers", defaults.layers);
  d.heads = keys.Whole("num_attention_heads", defaults.heads);
  const std::int64_t kv_heads = defaults.kv_heads == 0 ? d.heads : defaults.kv_heads;
  d.kv_heads = defaults.null_kv_heads ? keys.WholeOrNull(kKvHeads, kv_heads, d.heads) : keys.Whole(kKvHeads, kv_heads);
  keys.Require(d.heads % d.kv_heads == 0, keys.Has(kKvHeads) ? kKvHeads : "num_attention_heads",
               fmt::format("expected {} attention heads to be a multiple of {} key-value heads", d.heads, d.kv_heads),
               keys.Has(kKvHeads) ? "each key-value head serves as many heads as any other"
                                  : fmt::format("where {} is not said, it is what its class has", kKvHeads));
  d.vocabulary = keys.Whole("vocab_size", defaults.vocabulary);
  d.tied_embeddings = keys.Truth("tie_word_embeddings", defaults.tied_embeddings);
  d.attention_dropout = keys.Fraction("attention_dropout", 0.0);
  return d;
}

void ReadHeadSize(HuggingFaceKeys& keys, Decoder& d) { SetHeadSize(keys, d, keys.Whole("head_dim", EvenHeadSize(d))); }

void ReadHeadSizeOrNull(HuggingFaceKeys& keys, Decoder& d, std::int64_t missing) {
  const std::int64_t even = EvenHeadSize(d);
  SetHeadSize(keys, d, keys.WholeOrNull("head_dim", missing > 0 ? missing : even, even));
}

bool TruthOrNull(HuggingFaceKeys& keys, const std::string& key) { return keys.Has(key) && keys.Truth(key, false); }

void RequireNoAttentionBias(HuggingFaceKeys& keys) {
  keys.Require(!keys.Truth("attention_bias", false), "attention_bias", "expected false",
               "a network with biases in the attention part only cannot be represented");
}

}  // namespace tidemark
