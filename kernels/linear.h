// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>

#include "kernels/tensor.h"

namespace tidemark::kernels {

/// A linear layer on `rows` tokens: Y[rows,out] = X[rows,in] W^T + b, W [out,in], b [out]. Y may be several tensors,
/// one for each part of W's rows from the first on, as a packed projection makes q, k and v: a part is as wide as its
/// tensor has elements a row. `rows` may be fewer than a microbatch's; the operands are then slices of as many rows.
///
///   forward          Y_p = X W_p^T + b_p
///   input gradient   dX = sum over p of dY_p W_p, rounded once
///   weight gradient  dW_p (+)= dY_p^T X
///   bias gradient    db_p (+)= sum over rows of dY_p
///
/// (+)=: with `accumulate` added to what there is, as kernels that write into a main gradient do; else overwritten.
struct Linear {
  std::int64_t rows = 0, in = 0, out = 0;
  bool accumulate = false;
};

/// Part of `out` outputs, in the input's dtype.
TensorType LinearOutput(const Linear& op, DType input, std::int64_t part);
TensorType LinearInputGradientOutput(const Linear& op, DType output_gradient);
TensorType LinearWeightGradientOutput(const Linear& op, DType gradients);
TensorType LinearBiasGradientOutput(const Linear& op, DType gradients);

void LinearForward(const Linear& op, const ConstTensor& input, const ConstTensor& weight,
                   const std::optional<ConstTensor>& bias, std::span<const Tensor> outputs);
void LinearInputGradient(const Linear& op, std::span<const ConstTensor> output_gradients, const ConstTensor& weight,
                         const Tensor& input_gradient);
void LinearWeightGradient(const Linear& op, const ConstTensor& input, std::span<const ConstTensor> output_gradients,
                          const Tensor& weight_gradient);
void LinearBiasGradient(const Linear& op, std::span<const ConstTensor> output_gradients, const Tensor& bias_gradient);

/// y = x + b, for rows that were summed over ranks before their bias is added. `output` may be `input`.
void AddBias(const Linear& op, const ConstTensor& input, const ConstTensor& bias, const Tensor& output);

}  // namespace tidemark::kernels
