// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "kernels/tensor.h"

namespace tidemark::kernels {

/// Rows x [rows, width], each times a gate of its own: y = g x, g = sigmoid(z v), with a row z [in] of another matrix
/// and a vector v [in]. y is made of g as it is stored. Backward: dx = g dy; `products` = dy x; `scores` [rows], ds = g
/// (1 - g) times the sum over a row of these, and of ds, as all of them are stored, dz = ds v and dv (+)= the sum over
/// rows of ds z.
struct RowGate {
  std::int64_t rows = 0, in = 0, width = 0;
  bool accumulate = false;
};

/// Output and gate, in the input's dtype.
struct RowGateTypes {
  TensorType output, gate;
};
RowGateTypes RowGateOutputs(const RowGate& op, DType input);
void RowGateForward(const RowGate& op, const ConstTensor& gate_input, const ConstTensor& vector,
                    const ConstTensor& input, const Tensor& output, const Tensor& gate);

struct RowGateGradientTypes {
  TensorType input, gate_input, products, scores;
};
RowGateGradientTypes RowGateGradients(const RowGate& op, DType output_gradient);
struct RowGateSaved {
  ConstTensor gate_input, vector, input, gate;
};
struct RowGateGradientTensors {
  Tensor input, gate_input, products, scores;
  std::optional<Tensor> vector = std::nullopt;
};
void RowGateBackward(const RowGate& op, const ConstTensor& output_gradient, const RowGateSaved& saved,
                     const RowGateGradientTensors& to);

}  // namespace tidemark::kernels
