// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/tensor.h"

namespace tidemark::kernels {

/// An activation between two linear layers, element by element.
///   relu       max(x, 0), NaN for NaN. Its backward pass reads the *output*: dx = dy where y > 0, else 0.
///   gelu       x Phi(x), with the error function (Hendrycks and Gimpel, 2016); backward reads the input.
///   gelu_tanh  x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), the same paper's approximation; reads the input.
enum class Activation : std::uint8_t { relu, gelu, gelu_tanh };

TensorType ActivationOutput(const TensorType& input);

void ActivationForward(Activation kind, const ConstTensor& input, const Tensor& output);
/// `saved` is the output for relu, else the input.
void ActivationBackward(Activation kind, const ConstTensor& saved, const ConstTensor& output_gradient,
                        const Tensor& input_gradient);

}  // namespace tidemark::kernels
