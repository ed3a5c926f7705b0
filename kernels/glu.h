// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/tensor.h"

namespace tidemark::kernels {

/// SwiGLU (Shazeer, GLU Variants Improve Transformer, 2020) of `rows` rows of `width`: y = silu(gate) up, where
/// silu(x) = x sigmoid(x) and silu'(x) = sigmoid(x) (1 + x (1 - sigmoid(x))).
///
/// Wherever gate or up is read or its gradient written, the operand may be the whole output of a packed projection,
/// [rows, 2 width] with the gate in front: the kernel knows by the number of elements, and touches its half. A caller
/// with one packed tensor gives it twice.
struct Glu {
  std::int64_t rows = 0, width = 0;
};

/// Of every dense tensor below, in the dtype of what it is made of.
TensorType GluOutput(const Glu& op, DType dtype);

void GluForward(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const Tensor& output);
void GluBackward(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const ConstTensor& output_gradient,
                 const Tensor& gate_gradient, const Tensor& up_gradient);

// The same in single operations.
void SiluForward(const Glu& op, const ConstTensor& gate, const Tensor& silu);
void ProductForward(const Glu& op, const ConstTensor& silu, const ConstTensor& up, const Tensor& output);
void ProductBackward(const Glu& op, const ConstTensor& output_gradient, const ConstTensor& silu, const ConstTensor& up,
                     const Tensor& silu_gradient, const Tensor& up_gradient);
void SiluBackward(const Glu& op, const ConstTensor& silu_gradient, const ConstTensor& gate,
                  const Tensor& gate_gradient);
/// Gradients of gate and up as one of the packed projection's output.
void JoinHalves(const Glu& op, const ConstTensor& gate, const ConstTensor& up, const Tensor& packed);

}  // namespace tidemark::kernels
