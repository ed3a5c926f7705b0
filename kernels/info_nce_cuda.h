// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/info_nce.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/info_nce.h on a GPU: products as in gemm_cuda.h.

void InfoNceLabels(const InfoNce& op, const Tensor& labels, const Queue& queue);
void SimilarityForward(const InfoNce& op, const ConstTensor& x, const ConstTensor& y, const Tensor& logits,
                       const Queue& queue);
void SimilarityBackward(const InfoNce& op, const ConstTensor& d_logits, const ConstTensor& x, const ConstTensor& y,
                        const Tensor& dx, const Tensor& dy, const Queue& queue);

void SurrogateForward(const ConstTensor& representation, const ConstTensor& cache, const Tensor& surrogate,
                      const Queue& queue);

void PoolForward(const Pool& op, const ConstTensor& tokens, const Tensor& pooled, const Queue& queue);
void PoolBackward(const Pool& op, const ConstTensor& pooled_gradient, const Tensor& tokens_gradient,
                  const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue InfoNceLabels{&kernels::InfoNceLabels, &cuda::InfoNceLabels};
inline constexpr OnQueue SimilarityForward{&kernels::SimilarityForward, &cuda::SimilarityForward};
inline constexpr OnQueue SimilarityBackward{&kernels::SimilarityBackward, &cuda::SimilarityBackward};
inline constexpr OnQueue SurrogateForward{&kernels::SurrogateForward, &cuda::SurrogateForward};
inline constexpr OnQueue PoolForward{&kernels::PoolForward, &cuda::PoolForward};
inline constexpr OnQueue PoolBackward{&kernels::PoolBackward, &cuda::PoolBackward};

}  // namespace tidemark::kernels::on
