// SPDX-License-Identifier: Apache-2.0
#include "kernels/expert_linear_cuda.h"
#include "kernels/expert_parts.h"
#include "kernels/linear_cuda.h"
#include "kernels/pointwise_cuda.h"

namespace tidemark::kernels::cuda {

void ExpertLinearForward(const ExpertLinear& op, const ConstTensor& input, std::span<const std::int64_t> counts,
                         const ConstTensor& weight, const Tensor& output, const Queue& queue) {
  EachExpertForward(op, input, counts, weight, output,
                    [&](const auto&... operands) { LinearForward(operands..., queue); });
}

void ExpertLinearInputGradient(const ExpertLinear& op, const ConstTensor& output_gradient,
                               std::span<const std::int64_t> counts, const ConstTensor& weight,
                               const Tensor& input_gradient, const Queue& queue) {
  EachExpertInputGradient(op, output_gradient, counts, weight, input_gradient,
                          [&](const auto&... operands) { LinearInputGradient(operands..., queue); });
}

void ExpertLinearWeightGradient(const ExpertLinear& op, const ConstTensor& input, const ConstTensor& output_gradient,
                                std::span<const std::int64_t> counts, const Tensor& weight_gradient,
                                const Queue& queue) {
  EachExpertWeightGradient(
      op, input, output_gradient, counts, weight_gradient,
      [&](const auto&... operands) { LinearWeightGradient(operands..., queue); },
      [&](const Tensor& gradient) { Zero(gradient, queue); });
}

}  // namespace tidemark::kernels::cuda
