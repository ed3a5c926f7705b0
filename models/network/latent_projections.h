// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/network/block_builder.h"
#include "models/network/decoder_parts.h"

namespace tidemark {

/// From a norm's output to the queries, keys and values of multi-latent attention (LatentAttention), as it is trained:
/// no projection is absorbed into another.
///
///   queries   wq_a to a latent vector of q_lora_rank, norm_q, wq_b to heads; without such a rank wq alone
///   keys and  wkv_a to a latent vector of kv_lora_rank and the rope_head_size elements that the keys of all heads
///   values    share; norm_kv, wkv_b to each head's own part of its key, and its value
///
/// Tensor-parallel ranks all have wq_a, wkv_a and the norms, for their own rows where these are scattered; wq_b and
/// wkv_b are divided by heads. What keys share is gathered beside the latent vector, and its gradient summed over the
/// ranks, of which each has that of its heads (Megatron-LM, megatron/core/transformer/multi_latent_attention.py).
///
/// Where rotation is fused (Partition::fused_rope), queries are rotated where they are, and what keys share on its way
/// into them (there in core/fusions/fused_mla_yarn_rope_apply.py); else both become new tensors. Keys are one in any
/// case, and so are values unless they are a view of what wkv_b has written (Decoder::qkv_views), which is then kept
/// with them: torchtitan, models/deepseek_v3/model/model.py; transformers, models/deepseek_v3/modeling_deepseek_v3.py.
///
/// Left out: what keys share is a view of what wkv_a has written, which keeps it while the latent vector is kept; here
/// they are two tensors, and so are their gradients, which autograd joins.
class LatentProjections {
 public:
  explicit LatentProjections(DecoderParts& parts) : parts_(parts) {}

  struct Qkv {
    TensorId q, k, v;
  };
  Qkv Forward(const NormPart& norm);
  /// The forward actions from the latent vectors on.
  const LayerPart& heads() const { return heads_; }
  /// From their gradients, [tokens, query width], [tokens, key width], [tokens, value width], to that of the norm's
  /// output.
  TensorId Backward(TensorId dq, TensorId dk, TensorId dv);

 private:
  BlockBuilder& b() { return parts_.builder(); }
  const LatentAttention& latent() const { return parts_.decoder().latent; }
  bool Fused() const { return parts_.partition().fused_rope; }
  /// A ring takes tensors of their own.
  bool ValuesAreView() const { return parts_.decoder().qkv_views && !Fused() && parts_.partition().cp == 1; }
  std::int64_t Queries() const { return parts_.shape().tokens * parts_.shape().query_width(); }
  std::int64_t Shared() const { return parts_.shape().tokens * latent().rope_head_size; }
  /// Elements of what wkv_b writes.
  std::int64_t Projected() const { return parts_.shape().tokens * parts_.shape().kv_heads * OwnAndValue(); }
  std::int64_t OwnAndValue() const {
    return parts_.shape().head_size - latent().rope_head_size + latent().value_head_size;
  }
  void AddColumn(ColumnPart& column, const std::string& name, std::int64_t width_of_head, TensorId output);
  void ProjectLatents();
  void ProjectQueries();
  Qkv MakeHeads();
  void Rotate(std::vector<Action>& pass, const std::string& name, TensorId from, TensorId to);
  TensorId QueriesBackward(TensorId dq);
  TensorId KeysBackward(TensorId dk, TensorId dv);

  DecoderParts& parts_;
  NormPart norm_, q_norm_, kv_norm_;
  ReplicatedPart q_down_, kv_down_;
  ColumnPart q_up_, kv_up_;
  TensorId q_projected_, kv_, shared_;
  LayerPart heads_{LayerPart::Kind::latent_heads, 0, 0};
};

}  // namespace tidemark
