// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/attention.h"

namespace tidemark::kernels {

// Attention in a framework's single operations. Scores and everything of their shape are
// [batch, heads, sequence, sequence]; rows of queries, and of keys and values repeated for every query head, are
// [batch, sequence, heads, head_size]; `context` alone is [batch, heads, sequence, head_size]. Where kv_heads is heads,
// keys and values that were not repeated have the same shape, and as in heads.h they may be a packed projection's
// output. Division is Copy (pointwise.h) with a factor of 1 / sqrt(head_size), dropout is dropout.h's.

/// Which part of a packed tensor.
enum class HeadPart : std::uint8_t { key, value };

TensorType ScoresOutput(const HeadShape& shape, DType dtype);
TensorType RepeatedOutput(const HeadShape& shape, DType dtype);

/// [.., kv_heads, ..] to [.., heads, ..], and back by summing.
void RepeatHeads(const HeadShape& shape, HeadPart part, const ConstTensor& heads, const Tensor& repeated);
void SumRepeatedHeads(const HeadShape& shape, const ConstTensor& repeated, const Tensor& heads);

/// scores = Q K^T, not scaled. `k` has `heads` heads.
void AttentionScores(const HeadShape& shape, const ConstTensor& q, const ConstTensor& k, const Tensor& scores);
/// -infinity where the key stands behind the query, or `window` tokens or more before it; 0: no limit.
void CausalMask(const HeadShape& shape, std::int64_t window, const ConstTensor& scores, const Tensor& masked);
/// Of each of `rows` rows of `width`.
void Softmax(std::int64_t rows, std::int64_t width, const ConstTensor& scores, const Tensor& softmax);
/// dx = y (dy - sum of y dy), y the softmax.
void SoftmaxGradient(std::int64_t rows, std::int64_t width, const ConstTensor& gradient, const ConstTensor& softmax,
                     const Tensor& scores_gradient);
/// context = weights V.
void AttentionContext(const HeadShape& shape, const ConstTensor& weights, const ConstTensor& v, const Tensor& context);
/// context to [batch, sequence, heads, head_size].
void HeadsToTokens(const HeadShape& shape, const ConstTensor& context, const Tensor& output);

// Gradients of the products. `output_gradient`, dv, dq and dk are rows of tokens.
void WeightsGradient(const HeadShape& shape, const ConstTensor& output_gradient, const ConstTensor& v,
                     const Tensor& weights_gradient);
void ValueGradient(const HeadShape& shape, const ConstTensor& weights, const ConstTensor& output_gradient,
                   const Tensor& dv);
void QueryGradient(const HeadShape& shape, const ConstTensor& scores_gradient, const ConstTensor& k, const Tensor& dq);
void KeyGradient(const HeadShape& shape, const ConstTensor& scores_gradient, const ConstTensor& q, const Tensor& dk);

}  // namespace tidemark::kernels
