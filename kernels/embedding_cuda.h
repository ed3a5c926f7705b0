// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/embedding.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/embedding.h on a GPU. Gradients are summed in the order of tokens here as well, without atomic additions,
// whose order changes from call to call.

void EmbeddingForward(const Embedding& op, const ConstTensor& ids, const ConstTensor& weight, const Tensor& output,
                      const Queue& queue);
void EmbeddingBackward(const Embedding& op, const ConstTensor& ids, const ConstTensor& output_gradient,
                       const Tensor& weight_gradient, const Queue& queue);

void PositionsForward(const Positions& op, const ConstTensor& input, const ConstTensor& table, const Tensor& output,
                      const Queue& queue);
void PositionsBackward(const Positions& op, const ConstTensor& output_gradient, const Tensor& table_gradient,
                       const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue EmbeddingForward{&kernels::EmbeddingForward, &cuda::EmbeddingForward};
inline constexpr OnQueue EmbeddingBackward{&kernels::EmbeddingBackward, &cuda::EmbeddingBackward};
inline constexpr OnQueue PositionsForward{&kernels::PositionsForward, &cuda::PositionsForward};
inline constexpr OnQueue PositionsBackward{&kernels::PositionsBackward, &cuda::PositionsBackward};

}  // namespace tidemark::kernels::on
