// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/result.h"
#include "models/network/block.h"

namespace tidemark {

/// Experts in the place of a layer's feed-forward network: a router sends each token to some of them, and adds up what
/// they make of it by its weights (Shazeer et al., Outrageously Large Neural Networks, 2017). No token is dropped.
struct Experts {
  static constexpr std::int64_t kMost = 1 << 12;
  std::int64_t count = 0;       ///< of each layer; 0: none
  std::int64_t per_token = 2;   ///< that the router sends a token to ("top-k")
  std::int64_t ffn = 0;         ///< width of one expert
  std::int64_t shared_ffn = 0;  ///< width of what all tokens go through beside them; 0: nothing
  /// The first layers, which have a feed-forward part of Decoder::ffn instead (Dai et al., DeepSeekMoE, 2024). They are
  /// blocks of their own, "dense.layer".
  std::int64_t dense_layers = 0;
  bool shared_gate = false;     ///< what that makes is weighted, too
  bool router_fp32 = false;     ///< logits and weights are fp32, whatever the activations are
  bool balancing_loss = false;  ///< from the scores of all experts (Fedus et al., Switch Transformers, 2021)
  /// Whose code computes them: rows are weighted between the two products (megatron_experts.h), or what the experts
  /// return is, in fp32 (torchtitan_experts.h).
  enum class Layer : std::uint8_t { megatron, torchtitan } layer = Layer::megatron;
  /// How tokens get to ranks that have other experts (layout.ep) or parts of them: each rank sends them where they
  /// belong, or all ranks gather all tokens.
  enum class Dispatcher : std::uint8_t { all_to_all, all_gather } dispatcher = Dispatcher::all_to_all;
  /// Products of all experts at once, or expert by expert, whose outputs are joined.
  enum class Kernel : std::uint8_t { grouped, sequential } kernel = Kernel::grouped;
  /// Tokens of the rank that gets most over those of the mean rank; of all experts on one rank there is no other.
  double imbalance = 1;
  friend bool operator==(const Experts&, const Experts&) = default;
};

/// Multi-latent attention: keys and values are made from a narrow vector of each token, and queries as well where they
/// have such a rank (DeepSeek-AI, DeepSeek-V2, 2024, section 2.1). Keys have as many heads as queries.
struct LatentAttention {
  std::int64_t kv_lora_rank = 0;    ///< width of that vector; 0: attention is none of this kind
  std::int64_t q_lora_rank = 0;     ///< 0: queries are made from the layer's input
  std::int64_t rope_head_size = 0;  ///< last elements of a query's and a key's head, which are rotated; keys share them
  std::int64_t value_head_size = 0;  ///< of a head of values; Decoder::head_size is that of queries and keys
  friend bool operator==(const LatentAttention&, const LatentAttention&) = default;
};

/// A decoder-only transformer, by everything that decides its memory and time. Llama-style and GPT-style networks are
/// points of the same space.
struct Decoder {
  /// Far above any network there is, and low enough for products of these to be worth checking.
  static constexpr std::int64_t kMostLayers = 1 << 14, kMostHidden = 1 << 20, kMostFfn = 1 << 22, kMostHeads = 1 << 16,
                                kMostHeadSize = 1 << 16, kMostRows = 1 << 24;  ///< rows: vocabulary, positions
  std::int64_t layers = 0, hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_size = 0, vocabulary = 0;
  std::int64_t positions = 0;  ///< rows of a learned position table; 0: rotary or none
  enum class Norm : std::uint8_t { rms, layer } norm = Norm::rms;
  /// What a layer normalises: what attention and the feed-forward part read, what they make before it is added to the
  /// residual stream (Liu et al., Swin Transformer V2, 2022; OLMo 2), or both (Gemma 2 and 3, GLM-4). The head's norm
  /// is there in any case.
  enum class NormPlacement : std::uint8_t { inputs, outputs, both } norm_placement = NormPlacement::inputs;
  enum class Ffn : std::uint8_t { glu, two_layer } ffn_kind = Ffn::glu;  ///< SwiGLU, or GELU/ReLU between two linears
  bool relu = false;  ///< two_layer with ReLU: its backward pass needs its output only
  bool rope = true;
  /// Where rotations have their cosines and sines from: nothing that stays, or a table that each layer has of its own,
  /// for as many positions as a sequence has tokens (rotary_angles.h).
  enum class RotaryTable : std::uint8_t {
    none,
    pairs,    ///< a complex number for each pair of a head's rotated numbers
    elements  ///< a cosine and a sine for each of them
  } rotary_table = RotaryTable::none;
  bool qkv_bias = false, linear_bias = false;
  bool qk_norm = false;  ///< queries and keys are normalised before they are rotated
  enum class QkNormOver : std::uint8_t {
    head,  ///< head by head, by weights of head_size that all heads of a kind share (Dehghani et al., Scaling Vision
           ///< Transformers to 22 Billion Parameters, 2023; Qwen3)
    all_heads  ///< a token's heads all at once, by a weight for each of their numbers (OLMo 2)
  } qk_norm_over = QkNormOver::head;
  bool tied_embeddings = false;
  bool parallel_residual = false;  ///< attention and feed-forward both read the layer input (GPT-NeoX)
  double dropout = 0;              ///< hidden dropout: one mask byte an element where > 0
  bool causal = true;              ///< each token attends to those before it only
  /// Of a causal mask: tokens that one attends to at most, itself the last of them (Beltagy et al., Longformer, 2020;
  /// Jiang et al., Mistral 7B, 2023); 0: itself and all before it.
  std::int64_t sliding_window = 0;
  std::int64_t full_attention_every = 0;  ///< each so many-th layer has no window; 0: all have it
  /// How the modelling code computes attention: one memory-linear kernel, or a framework's single operations (scores in
  /// memory), with the softmax in the activations' dtype or in fp32 and cast back.
  enum class AttentionKernel : std::uint8_t {
    flash,
    eager,
    eager_fp32_softmax
  } attention_kernel = AttentionKernel::flash;
  double attention_dropout = 0;  ///< of eager attention's probabilities; a flash kernel keeps no mask
  /// How it computes RMSNorm: one kernel, or single operations that cast up and, before the weight or behind it, down
  /// again, or that do not cast.
  enum class NormKernel : std::uint8_t {
    fused,
    eager,
    eager_fp32_weight,
    eager_low_precision
  } norm_kernel = NormKernel::fused;
  bool qkv_views = false;  ///< v, and without rotation q and k, are views that keep the packed projection's output
  LatentAttention latent;
  Experts experts;

  bool IsLatent() const { return latent.kv_lora_rank > 0; }
  /// Of the network's layer number `layer`, from 0 on; 0: it has none.
  std::int64_t WindowOf(std::int64_t layer) const {
    return full_attention_every > 0 && (layer + 1) % full_attention_every == 0 ? 0 : sliding_window;
  }
  /// Whether a window hides something of a sequence of so many tokens, and how many layers have none.
  bool HidesOf(std::int64_t sequence) const { return sliding_window > 0 && sliding_window < sequence; }
  std::int64_t LayersWithoutWindow() const { return full_attention_every > 0 ? layers / full_attention_every : 0; }
  bool NormalisesInputs() const { return norm_placement != NormPlacement::outputs; }
  bool NormalisesOutputs() const { return norm_placement != NormPlacement::inputs; }
  std::int64_t value_head_size() const { return IsLatent() ? latent.value_head_size : head_size; }
  friend bool operator==(const Decoder&, const Decoder&) = default;
};

/// One row of a table network: a block known only by its sizes and times, of Table::samples samples.
struct TableRow {
  std::string name;
  std::int64_t count = 1;
  std::int64_t parameters = 0;
  std::int64_t saved_bytes = 0;                          ///< from its forward pass to its backward pass
  std::int64_t transient_bytes = 0;                      ///< beside them while either pass runs
  std::optional<std::int64_t> backward_transient_bytes;  ///< of the backward pass, where that is another number
  std::int64_t forward_flops = 0, backward_flops = 0;
  std::int64_t forward_ns = 0, backward_ns = 0;  ///< 0: use flops
  std::int64_t frozen_parameters = 0;            ///< beside `parameters`: without gradients and optimizer state
  friend bool operator==(const TableRow&, const TableRow&) = default;
};

struct Table {
  std::vector<TableRow> rows;
  /// That the sizes and times of a row are of, all but its parameters. What was measured of a whole microbatch stays
  /// exact, though parts of it (a batch norm's statistics) do not divide into samples.
  std::int64_t samples = 1;
  friend bool operator==(const Table&, const Table&) = default;
};

/// Two transformer encoders, or one for both sides of a pair, each without a head: the last layer's first token,
/// normalised, and projected where `representation` is another width than the tower's, is a sample's representation.
/// Trained with InfoNCE over all pairs of the batch on all ranks, or on each rank by itself. What a Decoder has beyond
/// an encoder (tied embeddings) is left alone.
///
/// `lm_loss` adds the loss of a language model on each tower's tokens, whose head reads the last norm's output and has
/// a weight of its own. With GradCache it is a chunk's, beside its surrogate, times its share of the batch, so 1/chunks
/// (coCondenser: github.com/luyug/Condenser, modeling.py, CoCondenserForPretraining, and trainer.py). The pass without
/// gradients multiplies with the head all the same, as there, and throws the logits away.
struct DualEncoder {
  Decoder first, second;  ///< the second is the first where it is shared
  bool shared = false;
  std::int64_t representation = 0;  ///< width of a representation, which is fp32
  std::int64_t targets = 1;         ///< samples of the second side for each of the first: 1 + hard negatives
  bool gather = true;               ///< the loss is over the pairs of all ranks; false: of this rank only
  bool lm_loss = false;
  friend bool operator==(const DualEncoder&, const DualEncoder&) = default;
};

struct Network {
  std::string name;
  std::variant<Decoder, Table, DualEncoder> shape;
  std::vector<std::string> trainable;  ///< globs over "block.parameter" ("layer.wq"); empty: all are trainable
  /// Decoder::norm_kernel as the modelling code has it that describes the network; what a job computes norms with, its
  /// shape says.
  Decoder::NormKernel eager_norms = Decoder::NormKernel::eager;
  friend bool operator==(const Network&, const Network&) = default;
};

/// Whether it holds of the network's decoder, or of one of its encoders; false of a network without layers of them.
template <class Holds>
bool AnyDecoder(const Network& network, Holds holds) {
  if (const auto* pair = std::get_if<DualEncoder>(&network.shape)) {
    return holds(pair->first) || holds(pair->second);
  }
  const auto* decoder = std::get_if<Decoder>(&network.shape);
  return decoder != nullptr && holds(*decoder);
}

/// The experts of its layers, or of all but the first ones; null where all have a feed-forward part, or the network has
/// no layers of a Decoder.
const Experts* ExpertsOf(const Network& network);

/// Total parameters of the whole network, tied ones once; 0 for a network that BuildBlocks refuses.
std::int64_t ParameterCount(const Network& network);

/// The blocks of the whole network (all pipeline stages) for one tensor-parallel rank, in forward order. Refuses a
/// partition that does not divide the network (heads, ffn, vocabulary, tokens by tp) and names which.
Result<std::vector<BlockRun>> BuildBlocks(const Network& network, const Partition& partition);

}  // namespace tidemark
