// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/expert_linear.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/expert_linear.h on a GPU: one product as in linear_cuda.h for each expert that has rows.

void ExpertLinearForward(const ExpertLinear& op, const ConstTensor& input, std::span<const std::int64_t> counts,
                         const ConstTensor& weight, const Tensor& output, const Queue& queue);
void ExpertLinearInputGradient(const ExpertLinear& op, const ConstTensor& output_gradient,
                               std::span<const std::int64_t> counts, const ConstTensor& weight,
                               const Tensor& input_gradient, const Queue& queue);
void ExpertLinearWeightGradient(const ExpertLinear& op, const ConstTensor& input, const ConstTensor& output_gradient,
                                std::span<const std::int64_t> counts, const Tensor& weight_gradient,
                                const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue ExpertLinearForward{&kernels::ExpertLinearForward, &cuda::ExpertLinearForward};
inline constexpr OnQueue ExpertLinearInputGradient{&kernels::ExpertLinearInputGradient,
                                                   &cuda::ExpertLinearInputGradient};
inline constexpr OnQueue ExpertLinearWeightGradient{&kernels::ExpertLinearWeightGradient,
                                                    &cuda::ExpertLinearWeightGradient};

}  // namespace tidemark::kernels::on
