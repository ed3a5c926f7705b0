// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/gradient_clip.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/gradient_clip.h on a GPU. No number comes to the host.

void GradientNorm(std::span<const ConstTensor> gradient, const Tensor& norms, std::int64_t index, const Queue& queue);
void SumOfSquares(const ConstTensor& norms, const Tensor& total, const Queue& queue);
void TakeClipCoefficient(double max_norm, const Tensor& total, const Queue& queue);
void ClipGradient(const ConstTensor& coefficient, const Tensor& gradient, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue GradientNorm{&kernels::GradientNorm, &cuda::GradientNorm};
inline constexpr OnQueue SumOfSquares{&kernels::SumOfSquares, &cuda::SumOfSquares};
inline constexpr OnQueue TakeClipCoefficient{&kernels::TakeClipCoefficient, &cuda::TakeClipCoefficient};
inline constexpr OnQueue ClipGradient{&kernels::ClipGradient, &cuda::ClipGradient};

}  // namespace tidemark::kernels::on
