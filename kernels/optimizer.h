// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/tensor.h"

namespace tidemark::kernels {

// Updates of `elements` weights. Operands of one call have as many elements each; dtypes may differ. What is written
// reads itself first. Arithmetic is fp64 where any operand is, else fp32.

/// AdamW (Loshchilov and Hutter, 2019), in the order of operations of torch.optim.AdamW (optim/adam.py):
///   w *= 1 - lr decay;  m += (1 - beta1) (g - m);  v = beta2 v + (1 - beta2) g^2;
///   w -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
struct AdamW {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0.01;
  std::int64_t step = 1;  ///< t, from 1
};

void AdamWUpdate(const AdamW& op, const ConstTensor& gradient, const Tensor& weight, const Tensor& first,
                 const Tensor& second);
// The same in torch's single operations: decayed weight and both moments; then, from the second moments, what weights
// are divided by; then the weights. `quotient` may be `root`.
void AdamWMoments(const AdamW& op, const ConstTensor& gradient, const Tensor& weight, const Tensor& first,
                  const Tensor& second);
void AdamWRoot(const ConstTensor& second, const Tensor& root);
void AdamWCorrectBias(const AdamW& op, const ConstTensor& root, const Tensor& quotient);
void AdamWAddEpsilon(const AdamW& op, const Tensor& denominator);
void AdamWApply(const AdamW& op, const ConstTensor& first, const ConstTensor& denominator, const Tensor& weight);

/// torch.optim.SGD (optim/sgd.py), dampening 0, no decay: buffer = momentum buffer + g; w -= lr buffer. With buffers
/// that begin as zeros the first step is torch's.
struct Sgd {
  double lr = 1e-3, momentum = 0.9;
};

/// w -= lr g.
void SgdUpdate(const Sgd& op, const ConstTensor& gradient, const Tensor& weight);
/// What comes before SgdUpdate with the buffer as the gradient.
void SgdMomentum(const Sgd& op, const ConstTensor& gradient, const Tensor& buffer);

}  // namespace tidemark::kernels
