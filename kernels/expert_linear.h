// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/linear.h"
#include "kernels/tensor.h"

namespace tidemark::kernels {

/// A linear layer of each of `experts`, one behind the other in the weight [experts out, in]: rows of the input are
/// expert by expert as well, as many of each as `counts` says, `rows` in all. An expert without rows has a weight
/// gradient of 0, or with `accumulate` the one that there is. Counts are the host's, which gives each product to a GPU.
struct ExpertLinear {
  std::int64_t experts = 0, rows = 0, in = 0, out = 0;
  bool accumulate = false;
};

TensorType ExpertLinearOutput(const ExpertLinear& op, DType input);
TensorType ExpertLinearInputGradientOutput(const ExpertLinear& op, DType output_gradient);
TensorType ExpertLinearWeightGradientOutput(const ExpertLinear& op, DType gradients);

void ExpertLinearForward(const ExpertLinear& op, const ConstTensor& input, std::span<const std::int64_t> counts,
                         const ConstTensor& weight, const Tensor& output);
void ExpertLinearInputGradient(const ExpertLinear& op, const ConstTensor& output_gradient,
                               std::span<const std::int64_t> counts, const ConstTensor& weight,
                               const Tensor& input_gradient);
void ExpertLinearWeightGradient(const ExpertLinear& op, const ConstTensor& input, const ConstTensor& output_gradient,
                                std::span<const std::int64_t> counts, const Tensor& weight_gradient);

}  // namespace tidemark::kernels
