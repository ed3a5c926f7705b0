// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/network/block_builder.h"
#include "models/network/decoder_parts.h"

namespace tidemark {

/// Attention over sequences that lie on the ranks of a ring, n of them (Liu et al., Ring Attention, 2023). Rank r has
/// stretch r of 2n from each sequence's front and stretch 2n - 1 - r: under a causal mask every rank then sees as many
/// pairs of tokens in every step, half of those of its tokens with its own.
///
/// Step i of the forward pass is attention to the keys and values of the rank i behind, while they go on to the rank
/// above; what the steps make is merged behind the last one. The backward pass begins with the keys that came last and
/// hands them back; their gradients follow one step behind, and each rank on the way adds its own, so that after n
/// steps each rank has those of its own keys.
///
/// Buffers are those of Transformer Engine (AttnFuncWithCPAndKVP2P of attention/dot_product_attention/
/// context_parallel.py at d0067d0d, causal, bf16, FlashAttention), for Q the bytes of q and KV those of k and v:
///   saved      q, the keys and values that came last, the output, one lse: 2 Q + KV + lse; what the next linear layer
///              saves is a copy of the output in its own layout, of another Q, but where one sequence has one layout
///   forward    every step's keys and values, its output, and k and v themselves stay until it returns:
///              (n + 1) KV + (n + 1) Q
///   backward   beside these two pairs of keys and values with their gradients, dq, one step's dq, dk, dv: 5 KV + 2 Q
///   messages   n - 1 of KV; back one of KV, n - 2 of 2 KV and one of KV
/// The outputs of steps that see half of the queries (keys of ranks above) are as long as the others here, as they are
/// on the ring's last rank, where there are none: it needs most. Left out: such copies of q, k, v and the output's
/// gradient; the packed projection's output, of which v is a view and which its caller names as well; half an lse and
/// fp32 products while results are merged; keys repeated for every query head (FlashAttention 2 with grouped queries);
/// and that every second step's tensors are of another stream, for which a caching allocator reserves by itself.
class RingAttention {
 public:
  explicit RingAttention(DecoderParts& parts) : parts_(parts) {}

  /// Writes `output` [tokens, output width]. q, k and v are tensors of their own. `op` is attention to the rank's own
  /// keys.
  void Forward(const Attention& op, TensorId q, TensorId k, TensorId v, TensorId output);
  /// Reads the gradient of the output, writes those of q, k and v.
  void Backward(const Attention& op, TensorId d_output, TensorId dq, TensorId dk, TensorId dv);

 private:
  BlockBuilder& b() { return parts_.builder(); }
  std::int64_t ranks() const { return parts_.partition().cp; }
  std::int64_t Queries() const { return parts_.shape().tokens * parts_.shape().query_width(); }
  std::int64_t Keys() const { return parts_.shape().tokens * parts_.shape().key_width(); }
  std::int64_t Values() const { return parts_.shape().tokens * parts_.shape().value_width(); }
  std::int64_t Outputs() const { return parts_.shape().tokens * parts_.shape().output_width(); }
  static Attention Step(Attention op, std::int64_t step);
  TensorId AddLse(std::string name);
  void Merge(const std::vector<TensorId>& outputs, const std::vector<TensorId>& lses);
  /// Keys and values of one step, and what is summed of their gradient.
  struct Pair {
    TensorId kv, d_kv;
  };
  /// Step `turn` of the backward pass: on `here`, while what others have summed for it comes to `there`.
  void StepBackward(const Attention& op, std::int64_t turn, const Pair& here, const Pair& there, TensorId d_output,
                    TensorId dq);

  DecoderParts& parts_;
  TensorId q_, kv_, output_, lse_;  ///< saved
};

}  // namespace tidemark
