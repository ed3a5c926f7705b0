// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/eager_attention.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/eager_attention.h on a GPU: products as in gemm_cuda.h, all heads of a sequence at a time.

void RepeatHeads(const HeadShape& shape, HeadPart part, const ConstTensor& heads, const Tensor& repeated,
                 const Queue& queue);
void SumRepeatedHeads(const HeadShape& shape, const ConstTensor& repeated, const Tensor& heads, const Queue& queue);

void AttentionScores(const HeadShape& shape, const ConstTensor& q, const ConstTensor& k, const Tensor& scores,
                     const Queue& queue);
void CausalMask(const HeadShape& shape, std::int64_t window, const ConstTensor& scores, const Tensor& masked,
                const Queue& queue);
void Softmax(std::int64_t rows, std::int64_t width, const ConstTensor& scores, const Tensor& softmax,
             const Queue& queue);
void SoftmaxGradient(std::int64_t rows, std::int64_t width, const ConstTensor& gradient, const ConstTensor& softmax,
                     const Tensor& scores_gradient, const Queue& queue);
void AttentionContext(const HeadShape& shape, const ConstTensor& weights, const ConstTensor& v, const Tensor& context,
                      const Queue& queue);
void HeadsToTokens(const HeadShape& shape, const ConstTensor& context, const Tensor& output, const Queue& queue);

void WeightsGradient(const HeadShape& shape, const ConstTensor& output_gradient, const ConstTensor& v,
                     const Tensor& weights_gradient, const Queue& queue);
void ValueGradient(const HeadShape& shape, const ConstTensor& weights, const ConstTensor& output_gradient,
                   const Tensor& dv, const Queue& queue);
void QueryGradient(const HeadShape& shape, const ConstTensor& scores_gradient, const ConstTensor& k, const Tensor& dq,
                   const Queue& queue);
void KeyGradient(const HeadShape& shape, const ConstTensor& scores_gradient, const ConstTensor& q, const Tensor& dk,
                 const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue RepeatHeads{&kernels::RepeatHeads, &cuda::RepeatHeads};
inline constexpr OnQueue SumRepeatedHeads{&kernels::SumRepeatedHeads, &cuda::SumRepeatedHeads};
inline constexpr OnQueue AttentionScores{&kernels::AttentionScores, &cuda::AttentionScores};
inline constexpr OnQueue CausalMask{&kernels::CausalMask, &cuda::CausalMask};
inline constexpr OnQueue Softmax{&kernels::Softmax, &cuda::Softmax};
inline constexpr OnQueue SoftmaxGradient{&kernels::SoftmaxGradient, &cuda::SoftmaxGradient};
inline constexpr OnQueue AttentionContext{&kernels::AttentionContext, &cuda::AttentionContext};
inline constexpr OnQueue HeadsToTokens{&kernels::HeadsToTokens, &cuda::HeadsToTokens};
inline constexpr OnQueue WeightsGradient{&kernels::WeightsGradient, &cuda::WeightsGradient};
inline constexpr OnQueue ValueGradient{&kernels::ValueGradient, &cuda::ValueGradient};
inline constexpr OnQueue QueryGradient{&kernels::QueryGradient, &cuda::QueryGradient};
inline constexpr OnQueue KeyGradient{&kernels::KeyGradient, &cuda::KeyGradient};

}  // namespace tidemark::kernels::on
