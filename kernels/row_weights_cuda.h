// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/queue.h"
#include "kernels/row_weights.h"

namespace tidemark::kernels::cuda {

// kernels/row_weights.h on a GPU.

void WeightedGluForward(const Glu& op, const ConstTensor& packed, const ConstTensor& row_weights, const Tensor& output,
                        const Queue& queue);
void WeightedGluBackward(const Glu& op, const ConstTensor& packed, const ConstTensor& row_weights,
                         const ConstTensor& output_gradient, const Tensor& packed_gradient,
                         const Tensor& row_weight_gradients, const Queue& queue);
void WeighRows(const ConstTensor& input, const ConstTensor& row_weights, const Tensor& output, const Queue& queue);
void RowWeightGradients(const ConstTensor& input, const ConstTensor& output_gradient, const Tensor& products,
                        const Tensor& row_weight_gradients, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue WeightedGluForward{&kernels::WeightedGluForward, &cuda::WeightedGluForward};
inline constexpr OnQueue WeightedGluBackward{&kernels::WeightedGluBackward, &cuda::WeightedGluBackward};
inline constexpr OnQueue WeighRows{&kernels::WeighRows, &cuda::WeighRows};
inline constexpr OnQueue RowWeightGradients{&kernels::RowWeightGradients, &cuda::RowWeightGradients};

}  // namespace tidemark::kernels::on
