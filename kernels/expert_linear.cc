// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_linear.h"

#include "kernels/expert_parts.h"
#include "kernels/pointwise.h"

namespace tidemark::kernels {

TensorType ExpertLinearOutput(const ExpertLinear& op, DType input) { return {input, op.rows * op.out}; }
TensorType ExpertLinearInputGradientOutput(const ExpertLinear& op, DType output_gradient) {
  return {output_gradient, op.rows * op.in};
}
TensorType ExpertLinearWeightGradientOutput(const ExpertLinear& op, DType gradients) {
  return {gradients, op.experts * op.out * op.in};
}

void ExpertLinearForward(const ExpertLinear& op, const ConstTensor& input, std::span<const std::int64_t> counts,
                         const ConstTensor& weight, const Tensor& output) {
  EachExpertForward(op, input, counts, weight, output, LinearForward);
}

void ExpertLinearInputGradient(const ExpertLinear& op, const ConstTensor& output_gradient,
                               std::span<const std::int64_t> counts, const ConstTensor& weight,
                               const Tensor& input_gradient) {
  EachExpertInputGradient(op, output_gradient, counts, weight, input_gradient, LinearInputGradient);
}

void ExpertLinearWeightGradient(const ExpertLinear& op, const ConstTensor& input, const ConstTensor& output_gradient,
                                std::span<const std::int64_t> counts, const Tensor& weight_gradient) {
  EachExpertWeightGradient(op, input, output_gradient, counts, weight_gradient, LinearWeightGradient, Zero);
}

}  // namespace tidemark::kernels
