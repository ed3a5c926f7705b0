// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "models/network/block_builder.h"
#include "models/network/decoder_parts.h"
#include "models/network/rotary_angles.h"

namespace tidemark {

/// From a norm's output to the queries, keys and values of multi-latent attention (LatentAttention), as it is trained:
/// no projection is absorbed into another. In the order of torchtitan (models/deepseek_v3/model.py) and transformers
/// (models/deepseek_v3/modeling_deepseek_v3.py); Megatron-LM makes both latent vectors first, of the same sizes.
///
///   queries   wq_a to a latent vector of q_lora_rank, norm_q, wq_b to heads; without such a rank wq alone
///   keys and  wkv_a to a latent vector of kv_lora_rank and the rope_head_size elements that the keys of all heads
///   values    share; norm_kv, wkv_b to each head's own part of its key, and its value
///
/// Tensor-parallel ranks all have wq_a, wkv_a and the norms; wq_b and wkv_b are divided by heads. Where rows are
/// scattered, each rank makes latent vectors of its own rows, which are gathered, and so is what keys share
/// (Megatron-LM, megatron/core/transformer/multi_latent_attention.py; torchtitan gathers the layer's input, and makes
/// all rows of them on every rank). Of the gradient of what keys share each rank has that of its heads: it is summed
/// over them, also where rows are not scattered, where Megatron-LM's file has no sum.
///
/// Where rotation is fused (Partition::fused_rope), queries are rotated where they are, and what keys share on its way
/// into them (there in core/fusions/fused_mla_yarn_rope_apply.py); else both become new tensors. Keys are one in any
/// case. Values are a view of what wkv_b has written, which is kept with them, or a tensor of their own
/// (Partition::latent_value_views), which a ring takes always.
///
/// Left out: what keys share is a view of what wkv_a has written, which keeps it while the latent vector is kept; here
/// they are two tensors, and so are their gradients, which autograd joins.
class LatentProjections {
 public:
  LatentProjections(DecoderParts& parts, RotaryAngles& angles) : parts_(parts), angles_(angles) {}

  struct Qkv {
    TensorId q, k, v;
  };
  /// Adds the two stretches from a latent vector to heads to the block's parts.
  Qkv Forward(const NormPart& norm);
  /// From their gradients, [tokens, query width], [tokens, key width], [tokens, value width], to that of the norm's
  /// output.
  TensorId Backward(TensorId dq, TensorId dk, TensorId dv);

 private:
  BlockBuilder& b() { return parts_.builder(); }
  const LatentAttention& latent() const { return parts_.decoder().latent; }
  bool Fused() const { return parts_.partition().fused_rope; }
  bool ValuesAreView() const { return parts_.partition().latent_value_views && parts_.partition().cp == 1; }
  std::int64_t Queries() const { return parts_.shape().tokens * parts_.shape().query_width(); }
  std::int64_t Shared() const { return parts_.shape().tokens * latent().rope_head_size; }
  /// Elements of what wkv_b writes.
  std::int64_t Projected() const { return parts_.shape().tokens * parts_.shape().kv_heads * OwnAndValue(); }
  std::int64_t OwnAndValue() const {
    return parts_.shape().head_size - latent().rope_head_size + latent().value_head_size;
  }
  void AddColumn(ColumnPart& column, const std::string& name, std::int64_t width_of_head, TensorId output);
  void AddPart(std::size_t begin);
  TensorId MakeQueries();
  void MakeKeys(Qkv& made);
  void Rotate(std::vector<Action>& pass, const std::string& name, bool backward, TensorId from, TensorId to);
  TensorId QueriesBackward(TensorId dq);
  TensorId KeysBackward(TensorId dk, TensorId dv);

  DecoderParts& parts_;
  RotaryAngles& angles_;
  NormPart norm_;
  ReplicatedPart q_down_, kv_down_;
  ColumnPart q_up_, kv_up_;
};

}  // namespace tidemark
