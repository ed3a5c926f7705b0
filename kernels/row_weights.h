// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/glu.h"
#include "kernels/tensor.h"

namespace tidemark::kernels {

// Rows of numbers, each times a weight of its own, [rows].

/// A gated activation whose rows are weighted, as one kernel: y = w silu(gate) up, where each row of `packed`
/// [rows, 2 width] has the gate in front. Backward: dw is the sum over the row of dy silu(gate) up.
void WeightedGluForward(const Glu& op, const ConstTensor& packed, const ConstTensor& row_weights, const Tensor& output);
void WeightedGluBackward(const Glu& op, const ConstTensor& packed, const ConstTensor& row_weights,
                         const ConstTensor& output_gradient, const Tensor& packed_gradient,
                         const Tensor& row_weight_gradients);

/// y = w x, of as many rows as there are weights. Its input gradient is the same of dy.
void WeighRows(const ConstTensor& input, const ConstTensor& row_weights, const Tensor& output);
/// dw, the sum over each row of `products`, dy x as rounded to their dtype.
void RowWeightGradients(const ConstTensor& input, const ConstTensor& output_gradient, const Tensor& products,
                        const Tensor& row_weight_gradients);

}  // namespace tidemark::kernels
