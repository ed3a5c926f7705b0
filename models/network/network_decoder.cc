// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "models/network/decoder_parts.h"
#include "models/network/families.h"

namespace tidemark {
namespace {

struct Bound {
  std::string_view field;
  std::int64_t value;
  std::int64_t smallest;
  std::int64_t largest;
};

Status CheckBounds(const Decoder& d) {
  const Bound bounds[] = {
      {"layers", d.layers, 1, Decoder::kMostLayers},
      {"hidden", d.hidden, 1, Decoder::kMostHidden},
      {"ffn", d.ffn, 1, Decoder::kMostFfn},
      {"heads", d.heads, 1, Decoder::kMostHeads},
      {"kv_heads", d.kv_heads, 1, Decoder::kMostHeads},
      {"head_size", d.head_size, 1, Decoder::kMostHeadSize},
      {"vocabulary", d.vocabulary, 1, Decoder::kMostRows},
      {"positions", d.positions, 0, Decoder::kMostRows},
      {"sliding_window", d.sliding_window, 0, Decoder::kMostRows},
      {"full_attention_every", d.full_attention_every, 0, Decoder::kMostLayers},
      {"latent_attention.kv_lora_rank", d.latent.kv_lora_rank, 0, Decoder::kMostHidden},
      {"latent_attention.q_lora_rank", d.latent.q_lora_rank, 0, Decoder::kMostHidden},
      {"latent_attention.rope_head_size", d.latent.rope_head_size, 0, Decoder::kMostHeadSize},
      {"latent_attention.value_head_size", d.latent.value_head_size, 0, Decoder::kMostHeadSize},
      {"experts.count", d.experts.count, 0, Experts::kMost},
      {"experts.per_token", d.experts.per_token, 1, Experts::kMost},
      {"experts.ffn", d.experts.ffn, 0, Decoder::kMostFfn},
      {"experts.shared_ffn", d.experts.shared_ffn, 0, Decoder::kMostFfn},
      {"experts.dense_layers", d.experts.dense_layers, 0, Decoder::kMostLayers},
  };
  for (const Bound& bound : bounds) {
    if (bound.value < bound.smallest || bound.value > bound.largest) {
      return BadInput(fmt::format("expected {} between {} and {}, found {}", bound.field, bound.smallest, bound.largest,
                                  bound.value));
    }
  }
  if (!(d.dropout >= 0 && d.dropout < 1)) {
    return BadInput(fmt::format("expected dropout of at least 0 and below 1, found {}", d.dropout));
  }
  if (!(d.attention_dropout >= 0 && d.attention_dropout < 1)) {
    return BadInput(fmt::format("expected attention_dropout of at least 0 and below 1, found {}", d.attention_dropout));
  }
  if (d.norm == Decoder::Norm::layer && d.norm_kernel != Decoder::NormKernel::fused) {
    return BadInput("an eager norm_kernel is RMSNorm's: frameworks compute LayerNorm in one kernel",
                    "set network.norm_kernel to fused");
  }
  if (d.rotary_table != Decoder::RotaryTable::none && !d.rope) {
    return BadInput("a rotary_table is of no use where nothing is rotated",
                    "set network.rope to true, or network.rotary_table to none");
  }
  if (d.rotary_table != Decoder::RotaryTable::none && !d.IsLatent() && d.head_size % 2 != 0) {
    return BadInput(
        fmt::format("expected head_size to be even, found {}: a rotary_table has rows of pairs", d.head_size),
        "change network.head_size, or set network.rotary_table to none");
  }
  if (d.qk_norm && d.qkv_views) {
    return BadInput("norms of queries and keys that are views of the packed projection are not modelled yet",
                    "set network.qkv_views to false, or network.qk_norm");
  }
  if (d.sliding_window > 0 && d.full_attention_every == 1) {
    return BadInput("a full_attention_every of 1 leaves no layer its sliding_window",
                    "set network.sliding_window to 0 where all layers attend to all tokens before");
  }
  if (d.heads % d.kv_heads != 0) {
    return BadInput(fmt::format("expected heads ({}) to be a multiple of kv_heads ({})", d.heads, d.kv_heads),
                    "each key-value head serves the same number of query heads");
  }
  return Done{};
}

/// Every size, count of operations and sum over layers that the tables derive stays below 2^60. Each estimate is an
/// upper bound of the undivided network's.
Status CheckProducts(const Decoder& d, const Partition& p) {
  const auto real = [](std::int64_t value) { return static_cast<double>(value); };
  const double tokens = real(p.micro_batch_size) * real(p.sequence_length);
  const double attention_width =
      real(std::max(d.heads, d.kv_heads)) * (real(d.head_size) + real(d.latent.value_head_size));
  const Experts& experts = d.experts;
  const double routed = experts.count == 0 ? 0 : real(experts.per_token) * real(experts.ffn) * real(p.ep);
  const double inner = std::max({real(d.hidden), real(d.ffn), attention_width, routed, real(experts.shared_ffn),
                                 real(d.latent.kv_lora_rank), real(d.latent.q_lora_rank)});
  const double widest = std::max({4 * inner, real(d.vocabulary)});
  const double largest[] = {
      2 * tokens * widest * inner,                                        // flops of a matrix product
      10 * tokens * real(p.sequence_length) * attention_width,            // flops of an attention backward
      64 * tokens * real(p.sequence_length) * real(d.heads),              // bytes of eager attention's scores
      8 * 8 * (tokens + inner) * widest,                                  // bytes that one operator touches
      16 * (2 * widest + real(d.positions)) * real(d.hidden),             // bytes of embeddings and their states
      16 * 8 * real(d.layers) * inner * inner,                            // bytes of all layers' weights and states
      16 * 8 * real(d.layers) * tokens * real(p.cp) * real(d.head_size),  // bytes of their rotary tables and rows
      8 * 8 * tokens * real(p.ep) * real(p.etp) * real(experts.count),    // bytes of the router's
      16 * 8 * real(d.layers) * real(experts.count) * real(experts.ffn) * real(d.hidden),  // of all experts'
  };
  if (*std::max_element(std::begin(largest), std::end(largest)) >= kLargestProduct) {
    return BadInput(fmt::format("expected a microbatch and a network whose sizes stay below 2^60, found {} x {} tokens "
                                "with hidden {} and ffn {}",
                                p.micro_batch_size, p.sequence_length, d.hidden, d.ffn),
                    "make micro_batch_size, sequence_length or the network smaller");
  }
  return Done{};
}

Status CheckDivides(std::string_view field, std::int64_t value, std::int64_t tp) {
  if (value % tp != 0) {
    return BadInput(fmt::format("expected {} ({}) to be a multiple of layout.tp ({})", field, value, tp),
                    "choose a layout.tp that divides it");
  }
  return Done{};
}

/// What multi-latent attention has, and what is not modelled of it.
Status CheckLatent(const Decoder& d) {
  const LatentAttention& latent = d.latent;
  if (!d.IsLatent()) {
    return latent == LatentAttention{}
               ? Status(Done{})
               : BadInput("something is said of multi-latent attention, and there is none",
                          "set network.latent_attention.kv_lora_rank, or leave out what else is said of it");
  }
  if (latent.rope_head_size < 2 || latent.rope_head_size % 2 != 0 || latent.rope_head_size >= d.head_size) {
    return BadInput(
        fmt::format("expected latent_attention.rope_head_size, an even number of at least 2 and below head_size "
                    "({}), of which it is a part; found {}",
                    d.head_size, latent.rope_head_size),
        "head_size is a whole query's and key's: qk_nope_head_dim + qk_rope_head_dim");
  }
  if (latent.value_head_size == 0) {
    return BadInput("a head of values needs a size", "set network.latent_attention.value_head_size");
  }
  if (d.kv_heads != d.heads) {
    return BadInput(
        fmt::format("expected as many kv_heads ({}) as heads ({}) in multi-latent attention", d.kv_heads, d.heads),
        fmt::format("set network.kv_heads to {}", d.heads));
  }
  struct Other {
    bool is_there;
    std::string_view what, hint;
  };
  const Other others[] = {
      {!d.rope, "without rotation", "set network.rope to true"},
      {d.qk_norm, "with norms of queries and keys", "set network.qk_norm to false"},
      {!d.NormalisesInputs(), "without norms of inputs", "set network.norm_placement to inputs or both"},
      {d.qkv_bias || d.linear_bias, "with biases", "set network.qkv_bias and network.linear_bias to false"},
      {d.attention_kernel != Decoder::AttentionKernel::flash, "in a framework's single operations",
       "set network.attention_kernel to flash"},
  };
  for (const Other& other : others) {
    if (other.is_there) {
      return BadInput(fmt::format("multi-latent attention {} is not modelled yet", other.what),
                      std::string(other.hint));
    }
  }
  return Done{};
}

/// What torchtitan's experts are not, and what is not modelled of them.
Status CheckTorchtitan(const Decoder& d) {
  const Experts& experts = d.experts;
  struct Other {
    bool is_there;
    std::string_view what, hint;
  };
  const Other others[] = {
      {!experts.router_fp32, "route in fp32", "set network.experts.router_fp32 to true"},
      {d.ffn_kind != Decoder::Ffn::glu, "have a gated unit", "set network.ffn_kind to glu"},
      {experts.balancing_loss, "have no loss for their balance", "set network.experts.balancing_loss to false"},
      {experts.shared_gate, "do not weight what all tokens go through", "set network.experts.shared_gate to false"},
      {experts.kernel != Experts::Kernel::grouped, "are computed at once", "set network.experts.kernel to grouped"},
      {experts.dispatcher != Experts::Dispatcher::all_to_all, "are sent their tokens",
       "set network.experts.dispatcher to all-to-all"},
  };
  for (const Other& other : others) {
    if (other.is_there) {
      return BadInput(fmt::format("torchtitan's experts (network.experts.layer) {}", other.what),
                      std::string(other.hint));
    }
  }
  return Done{};
}

Status CheckExperts(const Decoder& d) {
  const Experts& experts = d.experts;
  if (experts.count == 0) {
    return experts == Experts{} ? Status(Done{})
                                : BadInput("something is said of experts, and there are none",
                                           "set network.experts.count, or leave out what else is said of experts");
  }
  if (experts.count < experts.per_token) {
    return BadInput(fmt::format("expected experts.per_token of at most the {} experts of a layer, found {}",
                                experts.count, experts.per_token));
  }
  if (experts.ffn == 0) {
    return BadInput("an expert needs a width", "set network.experts.ffn");
  }
  if (experts.dense_layers >= d.layers) {
    return BadInput(fmt::format("expected experts.dense_layers below the {} layers, of which at least one has experts, "
                                "found {}",
                                d.layers, experts.dense_layers),
                    "leave out what is said of experts where no layer has any");
  }
  if (!d.NormalisesInputs()) {
    return BadInput("experts without a norm of their input are not modelled yet",
                    "set network.norm_placement to inputs or both");
  }
  if (d.linear_bias) {
    return BadInput("experts whose linear layers have biases are not modelled yet", "set network.linear_bias to false");
  }
  if (experts.shared_gate && experts.shared_ffn == 0) {
    return BadInput("experts.shared_gate weights what shared experts make, and there are none",
                    "set network.experts.shared_ffn, or network.experts.shared_gate to false");
  }
  return experts.layer == Experts::Layer::torchtitan ? CheckTorchtitan(d) : Status(Done{});
}

Status CheckExpertDivision(const Experts& experts, const Partition& p) {
  const bool is_torchtitan = experts.layer == Experts::Layer::torchtitan;
  if (is_torchtitan && p.etp > 1) {
    return BadInput(
        "torchtitan's experts (network.experts.layer) are whole on each rank here",
        "set layout.tp to 1; or, where the strategy divides experts, layout.etp to 1 and layout.ep to a multiple of "
        "layout.tp");
  }
  if (is_torchtitan && p.compute != DType::bf16) {
    return BadInput("torchtitan's experts (network.experts.layer) compute in bf16, whatever the other layers do",
                    "set precision.params to bf16");
  }
  if (experts.count % p.ep != 0) {
    return BadInput(fmt::format("expected experts.count ({}) to be a multiple of layout.ep ({})", experts.count, p.ep),
                    "choose a layout.ep that divides it");
  }
  if (experts.ffn % p.etp != 0) {
    return BadInput(fmt::format("expected experts.ffn ({}) to be a multiple of layout.etp ({})", experts.ffn, p.etp),
                    "choose a layout.etp that divides it");
  }
  // A token goes to different experts, of which a rank has count / ep.
  const double most = static_cast<double>(std::min(experts.per_token, experts.count / p.ep)) *
                      static_cast<double>(p.ep) / static_cast<double>(experts.per_token);
  if (p.ep > 1 && experts.imbalance > most) {
    return BadInput(fmt::format("experts.imbalance of {}: where each token goes to {} of {} experts, the fullest of {} "
                                "ranks gets at most {:.3g} times as many as the mean",
                                experts.imbalance, experts.per_token, experts.count, p.ep, most),
                    "network.experts.imbalance is 1 where tokens spread evenly");
  }
  return Done{};
}

Status CheckDivision(const Decoder& d, const Partition& p) {
  TIDEMARK_TRY(CheckDivides("heads", d.heads, p.tp));
  if (d.experts.count == 0 || d.experts.dense_layers > 0) {
    TIDEMARK_TRY(CheckDivides("ffn", d.ffn, p.tp));
  }
  if (d.experts.count > 0) {
    TIDEMARK_TRY(CheckDivides("experts.shared_ffn", d.experts.shared_ffn, p.tp));
    TIDEMARK_TRY(CheckExpertDivision(d.experts, p));
  }
  TIDEMARK_TRY(CheckDivides("vocabulary", d.vocabulary, p.tp));
  if (d.qk_norm && d.qk_norm_over == Decoder::QkNormOver::all_heads && p.tp > 1) {
    return BadInput("norms over all heads (network.qk_norm_over) whose heads are on several ranks are not modelled yet",
                    "set layout.tp to 1");
  }
  if (d.kv_heads % p.tp != 0 && p.tp % d.kv_heads != 0) {
    return BadInput(
        fmt::format("expected kv_heads ({}) to divide layout.tp ({}) or to be a multiple of it", d.kv_heads, p.tp),
        "ranks share key-value heads evenly, or replicate them evenly");
  }
  if (p.sequence_parallel) {
    TIDEMARK_TRY(CheckDivides("tokens of a microbatch", p.micro_batch_size * p.sequence_length, p.tp));
    if (!d.NormalisesInputs() && p.tp > 1 && p.gathered == Partition::Gathered::pool_unsafe) {
      return BadInput(
          "without norms of inputs the gradients that layers hand on would lie in the pool that the next gather "
          "overwrites",
          "set buffers.tp_gather to pooled, or network.norm_placement to inputs or both");
    }
  }
  const bool hides = d.HidesOf(p.sequence_length * p.cp);
  if (hides && !d.causal) {
    return BadInput("windows of attention that is not causal are not modelled yet",
                    "set network.sliding_window to 0, or network.causal to true");
  }
  if (hides && p.cp > 1) {
    return BadInput("windows of attention (network.sliding_window) in a ring are not modelled yet",
                    "set layout.cp to 1, or network.sliding_window to 0");
  }
  if (d.positions > 0 && p.sequence_length * p.cp > d.positions) {
    return BadInput(fmt::format("expected sequence_length of at most the {} learned positions, found {}", d.positions,
                                p.sequence_length * p.cp),
                    "shorten sequence_length, or use a network with rotary positions");
  }
  return Done{};
}

}  // namespace

Result<std::vector<BlockRun>> BuildDecoder(const Decoder& decoder, std::span<const std::string> trainable,
                                           const Partition& partition) {
  TIDEMARK_TRY(CheckBounds(decoder));
  TIDEMARK_TRY(CheckLatent(decoder));
  TIDEMARK_TRY(CheckExperts(decoder));
  TIDEMARK_TRY(CheckProducts(decoder, partition));
  TIDEMARK_TRY(CheckDivision(decoder, partition));
  std::vector<BlockRun> runs;
  runs.push_back({BuildEmbedding(decoder, trainable, partition), 1});
  const std::int64_t dense_layers = decoder.experts.dense_layers;
  if (dense_layers > 0) {
    Decoder dense = decoder;
    dense.experts = {};
    runs.push_back({BuildLayer(dense, trainable, partition, "dense.layer"), dense_layers});
  }
  runs.push_back({BuildLayer(decoder, trainable, partition), decoder.layers - dense_layers});
  runs.push_back({BuildHead(decoder, trainable, partition), 1});
  return runs;
}

}  // namespace tidemark
