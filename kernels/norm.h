// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "kernels/tensor.h"

namespace tidemark::kernels {

/// RMSNorm (Zhang and Sennrich, 2019) or LayerNorm (Ba et al., 2016) of `rows` rows of `width`.
///
///   RMSNorm    rstd = 1 / sqrt(mean(x^2) + eps)      xhat = x rstd            y = xhat w
///   LayerNorm  rstd = 1 / sqrt(var(x) + eps)         xhat = (x - mean) rstd   y = xhat w + b
///
/// Backward, with g = dy w:  dx = rstd (g - xhat mean(xhat g)), for LayerNorm less rstd mean(g);
/// dw (+)= sum over rows of dy xhat, db (+)= sum over rows of dy; (+)= with `accumulate`, else overwritten.
/// What the backward pass needs of the forward pass: x, rstd [rows] and, for LayerNorm, mean [rows].
struct Norm {
  std::int64_t rows = 0, width = 0;
  bool layer_norm = false;
  double eps = 1e-5;
  bool accumulate = false;
};

struct NormTypes {
  TensorType output, rstd, mean;  ///< mean: of LayerNorm only
};
NormTypes NormOutputs(const Norm& op, DType input);
TensorType NormInputGradientOutput(const Norm& op, DType input);
/// Of the weight, and of the bias.
TensorType NormWeightGradientOutput(const Norm& op, DType gradients);

/// LayerNorm has a bias and a mean, RMSNorm neither.
void NormForward(const Norm& op, const ConstTensor& input, const ConstTensor& weight,
                 const std::optional<ConstTensor>& bias, const Tensor& output, const Tensor& rstd,
                 const std::optional<Tensor>& mean);
/// Weight and bias gradients are made where they are asked for.
void NormBackward(const Norm& op, const ConstTensor& output_gradient, const ConstTensor& input, const ConstTensor& rstd,
                  const std::optional<ConstTensor>& mean, const ConstTensor& weight, const Tensor& input_gradient,
                  const std::optional<Tensor>& weight_gradient, const std::optional<Tensor>& bias_gradient);

}  // namespace tidemark::kernels
