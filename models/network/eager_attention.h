// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/network/block_builder.h"
#include "models/network/decoder_parts.h"

namespace tidemark {

/// Attention written out in a framework's single operations (Decoder::AttentionKernel::eager): keys and values are
/// repeated for every query head, scores are divided, masked, put through a softmax and dropped out in a tensor each.
/// With s tokens a sequence, b sequences and a heads on this rank, what is kept from the forward to the backward pass
/// is, in units of a s^2 b bytes and for two-byte activations: softmax 2; with dropout 2 + mask 1 + dropped 2; softmax
/// in fp32 4 + its cast 2; with dropout 4 + 1 + 2. All of that was read off a running PyTorch.
class EagerAttention {
 public:
  explicit EagerAttention(DecoderParts& parts) : parts_(parts) {}

  /// Writes `output` [tokens, query width].
  void Forward(TensorId q, TensorId k, TensorId v, TensorId output);

  /// Reads the gradient of the output, writes those of q, k and v.
  void Backward(TensorId d_output, TensorId dq, TensorId dk, TensorId dv);

 private:
  BlockBuilder& b() { return parts_.builder(); }
  std::int64_t repeats() const { return parts_.shape().heads / parts_.shape().kv_heads; }
  /// One value for each pair of tokens of each head.
  TensorId AddScores(std::string name, DType dtype);
  TensorId AddRow(std::string name);  ///< one of q's shape
  TensorId Repeat(TensorId heads, const std::string& name);
  void SumRepeats(TensorId repeated, TensorId heads, const std::string& name);
  /// A product per head: of two rows of tokens, [s, s], or of such scores with rows.
  void Product(std::vector<Action>& pass, const std::string& name, std::vector<TensorId> reads, TensorId to,
               bool to_scores);
  /// q k^T, divided by the root of the head's size, and masked.
  TensorId Scores();
  void Probabilities(TensorId scores);
  /// The gradient of what came out of the softmax to that of q k^T.
  TensorId ScoresBackward(TensorId d_weights);

  DecoderParts& parts_;
  TensorId q_, k_, v_;  ///< of every query head
  TensorId softmax_, mask_;
  TensorId weights_;  ///< what multiplies the values
};

}  // namespace tidemark
