// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/heads.h"

namespace tidemark::kernels {

/// O = softmax(scale Q K^T) V for each head, in tiles of the scores: memory grows with the sequence, not its square
/// (Dao et al., FlashAttention, 2022, algorithms 1, 2 and 4). With `causal` a token sees itself and those before it.
///
/// Saved for the backward pass: lse[token, head] = log sum exp of the row's scaled scores. With P = exp(S - lse) and
/// delta[token, head] = sum of dO O over the head:
///   dV = P^T dO,  dS = P (dO V^T - delta),  dQ = scale dS K,  dK = scale dS^T Q;
/// dK and dV are sums over the query heads that share them. dQ is summed over tiles in `dq_accumulator`, in the
/// arithmetic's dtype, and rounded once.
struct Attention {
  HeadShape shape;
  bool causal = true;
  double scale = 0;  ///< of scores; 0: 1 / sqrt(head_size)
};

struct AttentionTypes {
  TensorType output, lse;
};
AttentionTypes AttentionOutputs(const Attention& op, DType dtype);

struct AttentionGradientTypes {
  TensorType dq, dk, dv, dq_accumulator, delta;
};
AttentionGradientTypes AttentionGradients(const Attention& op, DType dtype);

/// output is [batch, sequence, heads, head_size].
void AttentionForward(const Attention& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                      const Tensor& output, const Tensor& lse);
void AttentionBackward(const Attention& op, const ConstTensor& q, const ConstTensor& k, const ConstTensor& v,
                       const ConstTensor& output, const ConstTensor& lse, const ConstTensor& output_gradient,
                       const Tensor& dq, const Tensor& dk, const Tensor& dv, const Tensor& dq_accumulator,
                       const Tensor& delta);

}  // namespace tidemark::kernels
