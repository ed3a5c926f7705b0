// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/tensor.h"

namespace tidemark::kernels {

// Clipping by the norm of all gradients (Pascanu et al., 2013), as torch.nn.utils.clip_grad_norm_: a number per tensor,
// the sum of their squares, which is what ranks add up, the coefficient min(1, max_norm / (norm + 1e-6)), and all
// gradients times that, whatever it is.

/// torch.nn.utils.clip_grad_norm_ adds this to the norm.
inline constexpr double kClipEpsilon = 1e-6;

/// norms[index] = sqrt(sum of g^2) over all parts of one gradient; none: 0. `norms` is StatisticsOf the gradients.
void GradientNorm(std::span<const ConstTensor> gradient, const Tensor& norms, std::int64_t index);
/// total = sum of norms^2: a square, one element.
void SumOfSquares(const ConstTensor& norms, const Tensor& total);
/// The coefficient of a total, on the host.
double ClipCoefficient(double max_norm, double total);
/// In place: the total becomes the coefficient.
void TakeClipCoefficient(double max_norm, const Tensor& total);
/// gradient *= coefficient, one element.
void ClipGradient(const ConstTensor& coefficient, const Tensor& gradient);

}  // namespace tidemark::kernels
