// SPDX-License-Identifier: Apache-2.0
#include "models/configs/torchtitan_attention.h"

#include <string_view>

#include "models/configs/translation.h"

namespace tidemark {
namespace {

constexpr std::string_view kOfGrouped[] = {"n_heads", "inner_attention", "dim",      "qkv_linear", "wo",
                                           "qk_norm", "n_kv_heads",      "head_dim", "rope"};
constexpr std::string_view kOfLatent[] = {"n_heads",
                                          "inner_attention",
                                          "dim",
                                          "wq",
                                          "wq_a",
                                          "wq_b",
                                          "wkv_a",
                                          "wkv_b",
                                          "wo",
                                          "q_lora_rank",
                                          "kv_lora_rank",
                                          "q_norm",
                                          "kv_norm",
                                          "qk_nope_head_dim",
                                          "qk_rope_head_dim",
                                          "v_head_dim",
                                          "rope",
                                          "mscale"};
constexpr std::string_view kOfProjections[] = {"head_dim", "n_heads", "n_kv_heads", "wqkv", "wq", "wkv"};
constexpr std::string_view kOfRotation[] = {"dim",
                                            "max_context_length",
                                            "theta",
                                            "scaling",
                                            "scaling_factor",
                                            "low_freq_factor",
                                            "high_freq_factor",
                                            "original_max_position_embeddings",
                                            "rope_factor",
                                            "beta_fast",
                                            "beta_slow",
                                            "original_seq_len",
                                            "truncate"};
constexpr std::string_view kOfKernel[] = {"block_size", "kernel_options", "window_size"};

Status ReadProjections(const TorchtitanModule& attention, std::int64_t hidden, SavedAttention& saved) {
  TIDEMARK_ASSIGN(const TorchtitanModule projections, attention.At("qkv_linear", kOfProjections));
  TIDEMARK_ASSIGN(saved.head_size, projections.Whole("head_dim"));
  TIDEMARK_TRY(projections.CheckWhole("n_heads", saved.heads));
  TIDEMARK_TRY(projections.CheckWhole("n_kv_heads", saved.kv_heads));
  TIDEMARK_TRY(attention.CheckWhole("head_dim", saved.head_size));
  saved.packed = projections.Has("wqkv");
  const std::int64_t q = saved.heads * saved.head_size, kv = saved.kv_heads * saved.head_size;
  if (saved.packed) {
    TIDEMARK_ASSIGN(saved.bias, projections.Linear("wqkv", hidden, q + 2 * kv));
    return Done{};
  }
  TIDEMARK_ASSIGN(saved.bias, projections.Linear("wq", hidden, q));
  TIDEMARK_ASSIGN(const bool other, projections.Linear("wkv", hidden, kv));
  if (other != saved.bias) {
    return projections.Refuse("wkv", "expected biases of queries, keys and values, or of none");
  }
  return Done{};
}

Status ReadGrouped(const TorchtitanModule& attention, std::int64_t hidden, SavedAttention& saved) {
  TIDEMARK_ASSIGN(saved.kv_heads, attention.WholeOr("n_kv_heads", saved.heads));
  TIDEMARK_TRY(ReadProjections(attention, hidden, saved));
  saved.qk_norm = attention.Has("qk_norm");
  if (saved.qk_norm) {
    TIDEMARK_TRY(attention.CheckNorm("qk_norm", saved.head_size));
  }
  return attention.CheckLinear("wo", saved.heads * saved.head_size, hidden);
}

/// Without a rank of its own q_norm is there, and not used.
Status ReadLatent(const TorchtitanModule& attention, std::int64_t hidden, SavedAttention& saved) {
  auto& [kv_rank, q_rank, rope, value] = saved.latent;
  TIDEMARK_ASSIGN(kv_rank, attention.Whole("kv_lora_rank", Decoder::kMostHidden));
  TIDEMARK_ASSIGN(rope, attention.Whole("qk_rope_head_dim", Decoder::kMostHeadSize));
  TIDEMARK_ASSIGN(value, attention.Whole("v_head_dim", Decoder::kMostHeadSize));
  TIDEMARK_ASSIGN(const std::int64_t own, attention.Whole("qk_nope_head_dim", Decoder::kMostHeadSize));
  saved.kv_heads = saved.heads;
  saved.head_size = own + rope;
  const std::int64_t queries = saved.heads * saved.head_size;
  const ConfigValue* rank = attention.value().Find("q_lora_rank");
  if (rank == nullptr || IsSameValue(rank->text, "0")) {
    TIDEMARK_TRY(attention.CheckLinear("wq", hidden, queries));
  } else {
    TIDEMARK_ASSIGN(q_rank, attention.Whole("q_lora_rank", Decoder::kMostHidden));
    if (attention.Has("wq")) {
      return attention.Refuse("wq", "stands beside q_lora_rank: expected null");
    }
    TIDEMARK_TRY(attention.CheckLinear("wq_a", hidden, q_rank));
    TIDEMARK_TRY(attention.CheckNorm("q_norm", q_rank));
    TIDEMARK_TRY(attention.CheckLinear("wq_b", q_rank, queries));
  }
  TIDEMARK_TRY(attention.CheckLinear("wkv_a", hidden, kv_rank + rope));
  TIDEMARK_TRY(attention.CheckNorm("kv_norm", kv_rank));
  TIDEMARK_TRY(attention.CheckLinear("wkv_b", kv_rank, saved.heads * (own + value)));
  return attention.CheckLinear("wo", saved.heads * value, hidden);
}

}  // namespace

Result<SavedAttention> ReadSavedAttention(const TorchtitanModule& layer, std::int64_t hidden) {
  const ConfigValue* value = layer.value().Find("attention");
  const bool is_latent = value != nullptr && value->Find("kv_lora_rank") != nullptr;
  using Names = std::span<const std::string_view>;
  TIDEMARK_ASSIGN(const TorchtitanModule attention,
                  layer.At("attention", is_latent ? Names(kOfLatent) : Names(kOfGrouped)));
  SavedAttention saved;
  TIDEMARK_ASSIGN(saved.heads, attention.Whole("n_heads"));
  TIDEMARK_TRY(attention.CheckWhole("dim", hidden));
  TIDEMARK_TRY(is_latent ? ReadLatent(attention, hidden, saved) : ReadGrouped(attention, hidden, saved));
  if (!attention.Has("rope")) {
    return attention.Refuse("rope", "expected a rotation of queries and keys, found nothing");
  }
  TIDEMARK_ASSIGN(const TorchtitanModule rope, attention.At("rope", kOfRotation));
  TIDEMARK_TRY(rope.CheckWhole("dim", is_latent ? saved.latent.rope_head_size : saved.head_size));
  TIDEMARK_ASSIGN(const TorchtitanModule kernel, attention.At("inner_attention", kOfKernel));
  const ConfigValue* window = kernel.value().Find("window_size");
  if (window != nullptr && (window->items.empty() || !IsSameValue(window->items.front().text, "-1"))) {
    return kernel.Refuse("window_size", "sliding windows are not supported by this version");
  }
  return saved;
}

}  // namespace tidemark
