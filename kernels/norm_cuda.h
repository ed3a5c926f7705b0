// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/norm.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/norm.h on a GPU.

void NormForward(const Norm& op, const ConstTensor& input, const ConstTensor& weight,
                 const std::optional<ConstTensor>& bias, const Tensor& output, const Tensor& rstd,
                 const std::optional<Tensor>& mean, const Queue& queue);
void NormBackward(const Norm& op, const ConstTensor& output_gradient, const ConstTensor& input, const ConstTensor& rstd,
                  const std::optional<ConstTensor>& mean, const ConstTensor& weight, const Tensor& input_gradient,
                  const std::optional<Tensor>& weight_gradient, const std::optional<Tensor>& bias_gradient,
                  const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue NormForward{&kernels::NormForward, &cuda::NormForward};
inline constexpr OnQueue NormBackward{&kernels::NormBackward, &cuda::NormBackward};

}  // namespace tidemark::kernels::on
