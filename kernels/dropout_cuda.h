// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/dropout.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/dropout.h on a GPU, with the same masks.

void DropoutForward(const Dropout& op, const ConstTensor& input, const Tensor& output, const Tensor& mask,
                    const Queue& queue);
void DropoutBackward(const Dropout& op, const ConstTensor& output_gradient, const ConstTensor& mask,
                     const Tensor& input_gradient, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue DropoutForward{&kernels::DropoutForward, &cuda::DropoutForward};
inline constexpr OnQueue DropoutBackward{&kernels::DropoutBackward, &cuda::DropoutBackward};

}  // namespace tidemark::kernels::on
