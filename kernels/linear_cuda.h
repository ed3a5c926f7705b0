// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/linear.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/linear.h on a GPU: products as in gemm_cuda.h. Y may be kMostTerms tensors (product_cuda.h).

void LinearForward(const Linear& op, const ConstTensor& input, const ConstTensor& weight,
                   const std::optional<ConstTensor>& bias, std::span<const Tensor> outputs, const Queue& queue);
void LinearInputGradient(const Linear& op, std::span<const ConstTensor> output_gradients, const ConstTensor& weight,
                         const Tensor& input_gradient, const Queue& queue);
void LinearWeightGradient(const Linear& op, const ConstTensor& input, std::span<const ConstTensor> output_gradients,
                          const Tensor& weight_gradient, const Queue& queue);
void LinearBiasGradient(const Linear& op, std::span<const ConstTensor> output_gradients, const Tensor& bias_gradient,
                        const Queue& queue);
void AddBias(const Linear& op, const ConstTensor& input, const ConstTensor& bias, const Tensor& output,
             const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue LinearForward{&kernels::LinearForward, &cuda::LinearForward};
inline constexpr OnQueue LinearInputGradient{&kernels::LinearInputGradient, &cuda::LinearInputGradient};
inline constexpr OnQueue LinearWeightGradient{&kernels::LinearWeightGradient, &cuda::LinearWeightGradient};
inline constexpr OnQueue LinearBiasGradient{&kernels::LinearBiasGradient, &cuda::LinearBiasGradient};
inline constexpr OnQueue AddBias{&kernels::AddBias, &cuda::AddBias};

}  // namespace tidemark::kernels::on
