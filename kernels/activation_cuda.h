// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/activation.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/activation.h on a GPU.

void ActivationForward(Activation kind, const ConstTensor& input, const Tensor& output, const Queue& queue);
void ActivationBackward(Activation kind, const ConstTensor& saved, const ConstTensor& output_gradient,
                        const Tensor& input_gradient, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue ActivationForward{&kernels::ActivationForward, &cuda::ActivationForward};
inline constexpr OnQueue ActivationBackward{&kernels::ActivationBackward, &cuda::ActivationBackward};

}  // namespace tidemark::kernels::on
