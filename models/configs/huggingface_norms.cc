// SPDX-License-Identifier: Apache-2.0
#include "models/configs/huggingface_norms.h"

#include "models/configs/huggingface_decoder.h"
#include "models/configs/huggingface_experts.h"
#include "models/configs/huggingface_windows.h"

namespace tidemark {
namespace {

void NormaliseAllHeads(Decoder& d) {
  d.qk_norm = true;
  d.qk_norm_over = Decoder::QkNormOver::all_heads;
}

}  // namespace

/// Where it has windows, layers without one rotate nothing; all are priced as if they rotated.
Decoder ReadExaone4(HuggingFaceKeys& keys) {
  Decoder d = ReadDecoder(keys, {.ffn = 16384, .kv_heads = 32, .vocabulary = 102400});
  ReadHeadSize(keys, d);
  d.norm_placement = Decoder::NormPlacement::outputs;
  d.qk_norm = true;
  ReadWindowByPattern(keys, d, 4096, 4);
  return d;
}

/// Of Gemma 3's files those that describe images as well have the language model's keys in `text_config`.
Decoder ReadGemma3Text(HuggingFaceKeys& keys) {
  Decoder d = ReadDecoder(keys, {.hidden = 2304,
                                 .ffn = 9216,
                                 .layers = 26,
                                 .heads = 8,
                                 .kv_heads = 4,
                                 .vocabulary = 262208,
                                 .tied_embeddings = true});
  d.head_size = keys.Whole("head_dim", 256);
  d.norm_placement = Decoder::NormPlacement::both;
  d.qk_norm = true;
  d.causal = !TruthOrNull(keys, "use_bidirectional_attention");
  ReadWindowByPattern(keys, d, 4096, 6);
  RequireNoAttentionBias(keys);
  for (const char* const cap : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    keys.Require(!keys.Has(cap), cap, "expected null", "scores or logits behind a tanh cannot be represented");
  }
  return d;
}

/// The gate and what it multiplies are parts of one product, which keep as many bytes as two products would.
Decoder ReadGlm4(HuggingFaceKeys& keys) {
  Decoder d = ReadDecoder(keys, {.ffn = 13696, .layers = 40, .kv_heads = 2, .vocabulary = 151552});
  d.head_size = keys.Whole("head_dim", 128);
  d.norm_placement = Decoder::NormPlacement::both;
  d.qkv_bias = keys.Truth("attention_bias", true);  // the output's projection has none
  return d;
}

/// Its router's sigmoid and bias are passed over, as DeepSeek's are. It makes logits in the activations' dtype, but
/// weights in fp32.
Decoder ReadMiniMaxM2(HuggingFaceKeys& keys) {
  Decoder d =
      ReadDecoder(keys, {.hidden = 3072, .ffn = 1536, .layers = 62, .heads = 48, .kv_heads = 8, .vocabulary = 200064});
  d.head_size = keys.Whole("head_dim", 128);
  NormaliseAllHeads(d);
  ReadHuggingFaceExperts(keys, d.experts, KeyOfExperts(keys), 256, 8);
  d.experts.ffn = d.ffn;
  d.experts.router_fp32 = true;
  return d;
}

Decoder ReadOlmo2(HuggingFaceKeys& keys) {
  Decoder d = ReadDecoder(keys, {.ffn = 11008, .vocabulary = 50304, .null_kv_heads = true});
  ReadHeadSize(keys, d);
  d.norm_placement = Decoder::NormPlacement::outputs;
  NormaliseAllHeads(d);
  RequireNoAttentionBias(keys);
  return d;
}

Decoder ReadOlmo3(HuggingFaceKeys& keys) {
  Decoder d = ReadOlmo2(keys);
  ReadWindowOfMost(keys, d, 4096, 4);
  return d;
}

Decoder ReadOlmoe(HuggingFaceKeys& keys) {
  Decoder d = ReadDecoder(
      keys, {.hidden = 2048, .ffn = 2048, .layers = 16, .heads = 16, .vocabulary = 50304, .null_kv_heads = true});
  ReadHeadSize(keys, d);
  NormaliseAllHeads(d);
  RequireNoAttentionBias(keys);
  keys.Require(!keys.Has("clip_qkv"), "clip_qkv", "expected null",
               "queries, keys and values that are clipped cannot be represented");
  ReadHuggingFaceExperts(keys, d.experts, KeyOfExperts(keys), 64, 8);
  d.experts.ffn = d.ffn;
  return d;
}

}  // namespace tidemark
