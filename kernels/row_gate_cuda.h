// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/queue.h"
#include "kernels/row_gate.h"

namespace tidemark::kernels::cuda {

// kernels/row_gate.h on a GPU.

void RowGateForward(const RowGate& op, const ConstTensor& gate_input, const ConstTensor& vector,
                    const ConstTensor& input, const Tensor& output, const Tensor& gate, const Queue& queue);
void RowGateBackward(const RowGate& op, const ConstTensor& output_gradient, const RowGateSaved& saved,
                     const RowGateGradientTensors& to, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue RowGateForward{&kernels::RowGateForward, &cuda::RowGateForward};
inline constexpr OnQueue RowGateBackward{&kernels::RowGateBackward, &cuda::RowGateBackward};

}  // namespace tidemark::kernels::on
