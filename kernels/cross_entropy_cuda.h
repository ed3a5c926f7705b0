// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cross_entropy.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/cross_entropy.h on a GPU.

void RowMax(const CrossEntropy& op, const ConstTensor& logits, const Tensor& row_max, const Queue& queue);

void RowSumOfExponentials(const CrossEntropy& op, const ConstTensor& logits, const ConstTensor& row_max,
                          const Tensor& row_sum, const Queue& queue);
void LogSoftmax(const CrossEntropy& op, const ConstTensor& logits, const ConstTensor& row_max,
                const ConstTensor& row_sum, const Tensor& log_softmax, const Queue& queue);
void NllForward(const CrossEntropy& op, const ConstTensor& labels, const ConstTensor& log_softmax, const Tensor& target,
                const Queue& queue);
void NllMean(const CrossEntropy& op, const ConstTensor& target, const Tensor& loss, const Queue& queue);
void NllBackward(const CrossEntropy& op, const ConstTensor& labels, const Tensor& d_log_softmax, const Queue& queue);
void LogSoftmaxBackward(const CrossEntropy& op, const ConstTensor& d_log_softmax, const ConstTensor& log_softmax,
                        const Tensor& d_logits, std::optional<double> row_gradient,
                        const std::optional<ConstTensor>& labels, const Queue& queue);

void LogSoftmaxForward(const CrossEntropy& op, const ConstTensor& logits, const Tensor& log_softmax,
                       const Queue& queue);
void NllLoss(const CrossEntropy& op, const ConstTensor& log_softmax, const ConstTensor& labels, const Tensor& loss,
             const Queue& queue);

void SoftmaxShift(const CrossEntropy& op, const ConstTensor& logits, const ConstTensor& row_max, const Tensor& softmax,
                  const Queue& queue);
void SoftmaxTarget(const CrossEntropy& op, const ConstTensor& labels, const ConstTensor& shifted, const Tensor& target,
                   const Queue& queue);
void SoftmaxExponential(const CrossEntropy& op, const Tensor& softmax, const Tensor& row_sum, const Queue& queue);
void SoftmaxNormalise(const CrossEntropy& op, const ConstTensor& row_sum, const ConstTensor& target,
                      const Tensor& softmax, const Tensor& loss, const std::optional<ConstTensor>& labels,
                      const Queue& queue);
void SoftmaxBackward(const CrossEntropy& op, const ConstTensor& labels, const Tensor& softmax, const Queue& queue);

void CrossEntropyInPlace(const CrossEntropy& op, const ConstTensor& labels, const Tensor& logits, const Tensor& losses,
                         const Queue& queue);
void SumLosses(const ConstTensor& losses, const Tensor& loss, const Queue& queue);

}  // namespace tidemark::kernels::cuda

namespace tidemark::kernels::on {

inline constexpr OnQueue RowMax{&kernels::RowMax, &cuda::RowMax};
inline constexpr OnQueue RowSumOfExponentials{&kernels::RowSumOfExponentials, &cuda::RowSumOfExponentials};
inline constexpr OnQueue LogSoftmax{&kernels::LogSoftmax, &cuda::LogSoftmax};
inline constexpr OnQueue NllForward{&kernels::NllForward, &cuda::NllForward};
inline constexpr OnQueue NllMean{&kernels::NllMean, &cuda::NllMean};
inline constexpr OnQueue NllBackward{&kernels::NllBackward, &cuda::NllBackward};
inline constexpr OnQueue LogSoftmaxBackward{&kernels::LogSoftmaxBackward, &cuda::LogSoftmaxBackward};
inline constexpr OnQueue LogSoftmaxForward{&kernels::LogSoftmaxForward, &cuda::LogSoftmaxForward};
inline constexpr OnQueue NllLoss{&kernels::NllLoss, &cuda::NllLoss};
inline constexpr OnQueue SoftmaxShift{&kernels::SoftmaxShift, &cuda::SoftmaxShift};
inline constexpr OnQueue SoftmaxTarget{&kernels::SoftmaxTarget, &cuda::SoftmaxTarget};
inline constexpr OnQueue SoftmaxExponential{&kernels::SoftmaxExponential, &cuda::SoftmaxExponential};
inline constexpr OnQueue SoftmaxNormalise{&kernels::SoftmaxNormalise, &cuda::SoftmaxNormalise};
inline constexpr OnQueue SoftmaxBackward{&kernels::SoftmaxBackward, &cuda::SoftmaxBackward};
inline constexpr OnQueue CrossEntropyInPlace{&kernels::CrossEntropyInPlace, &cuda::CrossEntropyInPlace};
inline constexpr OnQueue SumLosses{&kernels::SumLosses, &cuda::SumLosses};

}  // namespace tidemark::kernels::on
