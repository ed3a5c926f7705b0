// SPDX-License-Identifier: Apache-2.0
#include "models/configs/huggingface_gpt.h"

#include <fmt/format.h>

#include <cstdint>
#include <string>

#include "models/configs/huggingface_decoder.h"
#include "models/configs/huggingface_windows.h"

namespace tidemark {
namespace {

/// GPT-style: LayerNorm, two linears with an activation between, as many key-value heads as heads, biases.
Decoder MakeGptStyle() {
  Decoder d;
  d.norm = Decoder::Norm::layer;
  d.ffn_kind = Decoder::Ffn::two_layer;
  d.rope = false;
  d.qkv_bias = d.linear_bias = true;
  return d;
}

void SetEvenHeads(HuggingFaceKeys& keys, Decoder& d, const std::string& heads_key) {
  d.kv_heads = d.heads;
  d.head_size = d.hidden / d.heads;
  keys.Require(d.hidden % d.heads == 0, heads_key,
               fmt::format("expected a number that divides the hidden size ({}), found {}", d.hidden, d.heads));
}

// OPT's position table has two rows that no position uses (OPTLearnedPositionalEmbedding.offset).
constexpr std::int64_t kOptPositionOffset = 2;

}  // namespace

/// resid_pdrop stands for embd_pdrop as well: the mask of the embedding exists where those of the layers do.
Decoder ReadGpt2(HuggingFaceKeys& keys) {
  Decoder d = MakeGptStyle();
  d.hidden = keys.Whole("n_embd", 768);
  d.layers = keys.Whole("n_layer", 12);
  d.heads = keys.Whole("n_head", 12);
  d.ffn = keys.WholeOrNull("n_inner", 4 * d.hidden, 4 * d.hidden);
  d.positions = keys.Whole("n_positions", 1024);
  d.vocabulary = keys.Whole("vocab_size", 50257);
  d.relu = keys.Word("activation_function", "gelu_new") == "relu";
  d.dropout = keys.Fraction("resid_pdrop", 0.1);
  d.attention_dropout = keys.Fraction("attn_pdrop", 0.1);
  d.tied_embeddings = keys.Truth("tie_word_embeddings", true);
  SetEvenHeads(keys, d, "n_head");
  keys.Require(!keys.Truth("add_cross_attention", false), "add_cross_attention",
               "expected a decoder without cross-attention");
  return d;
}

Decoder ReadGptNeox(HuggingFaceKeys& keys) {
  Decoder d = MakeGptStyle();
  d.rope = d.qkv_views = true;
  d.hidden = keys.Whole("hidden_size", 6144);
  d.ffn = keys.Whole("intermediate_size", 24576);
  d.layers = keys.Whole("num_hidden_layers", 44);
  d.heads = keys.Whole("num_attention_heads", 64);
  d.vocabulary = keys.Whole("vocab_size", 50432);
  d.relu = keys.Word("hidden_act", "gelu") == "relu";
  d.dropout = keys.Fraction("hidden_dropout", 0.0);
  d.attention_dropout = keys.Fraction("attention_dropout", 0.0);
  d.parallel_residual = keys.Truth("use_parallel_residual", true);
  d.tied_embeddings = keys.Truth("tie_word_embeddings", false);
  SetEvenHeads(keys, d, "num_attention_heads");
  keys.Require(keys.Truth("attention_bias", true), "attention_bias", "expected true",
               "a network with biases in the feed-forward part only cannot be represented");
  return d;
}

Decoder ReadOpt(HuggingFaceKeys& keys) {
  Decoder d = MakeGptStyle();
  d.hidden = keys.Whole("hidden_size", 768);
  d.ffn = keys.Whole("ffn_dim", 3072);
  d.layers = keys.Whole("num_hidden_layers", 12);
  d.heads = keys.Whole("num_attention_heads", 12);
  d.positions = keys.Whole("max_position_embeddings", 2048) + kOptPositionOffset;
  d.vocabulary = keys.Whole("vocab_size", 50272);
  d.relu = keys.Word("activation_function", "relu") == "relu";
  d.dropout = keys.Fraction("dropout", 0.1);
  d.attention_dropout = keys.Fraction("attention_dropout", 0.0);
  d.tied_embeddings = keys.Truth("tie_word_embeddings", true);
  d.qkv_bias = d.linear_bias = keys.Truth("enable_bias", true);
  SetEvenHeads(keys, d, "num_attention_heads");
  const std::int64_t embedding = keys.WholeOrNull("word_embed_proj_dim", d.hidden, d.hidden);
  keys.Require(embedding == d.hidden, "word_embed_proj_dim",
               fmt::format("expected the hidden size ({}), found {}", d.hidden, embedding),
               "projections around the embedding cannot be represented");
  keys.Require(keys.Truth("do_layer_norm_before", true), "do_layer_norm_before", "expected true",
               "norms behind the residual addition cannot be represented");
  keys.Require(keys.Truth("layer_norm_elementwise_affine", true), "layer_norm_elementwise_affine", "expected true",
               "norms without weights cannot be represented");
  return d;
}

/// With rotations, and fewer key-value heads than heads.
Decoder ReadStarcoder2(HuggingFaceKeys& keys) {
  Decoder d = ReadDecoder(keys, {.hidden = 3072,
                                 .ffn = 12288,
                                 .layers = 30,
                                 .heads = 24,
                                 .kv_heads = 2,
                                 .vocabulary = 49152,
                                 .tied_embeddings = true});
  ReadHeadSizeOrNull(keys, d);
  ReadWindow(keys, d, 0);
  d.norm = Decoder::Norm::layer;
  d.ffn_kind = Decoder::Ffn::two_layer;
  d.relu = keys.Word("hidden_act", "gelu_pytorch_tanh") == "relu";
  d.qkv_bias = d.linear_bias = keys.Truth("use_bias", true);
  d.dropout = keys.Fraction("residual_dropout", 0.0);
  keys.Require(keys.Fraction("embedding_dropout", 0.0) == d.dropout, "embedding_dropout",
               fmt::format("expected residual_dropout ({})", d.dropout),
               "dropout in the layers and another on the embedding cannot be represented");
  return d;
}

}  // namespace tidemark
