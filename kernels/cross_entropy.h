// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "kernels/tensor.h"

namespace tidemark::kernels {

/// Softmax cross-entropy of `rows` rows of `columns` logits x against labels (int64), in the passes that frameworks
/// make: loss = -(1 / divisor) sum over rows of log softmax(x)[label].
///
/// A rank that holds a part of the vocabulary has the columns from `first_column` on. Labels stay global: what is
/// another rank's is no target here, and the row statistics marked * must be reduced over the ranks before they are
/// read (maximum: max; sums, targets: sum). A negative label (PyTorch's ignore_index -100) is no target on any rank,
/// and its row adds neither loss nor gradient; `divisor` is then the number of the other rows, which the caller knows.
///
/// Row statistics are StatisticsOf the matrices.
struct CrossEntropy {
  std::int64_t rows = 0, columns = 0, first_column = 0;
  double divisor = 0;  ///< 0: `rows`
  double scale = 1;    ///< of the loss's own gradient: the strategy's 1/M
};

TensorType CrossEntropyMatrix(const CrossEntropy& op, DType dtype);
TensorType CrossEntropyRows(const CrossEntropy& op, DType matrix);
TensorType CrossEntropyLoss(DType matrix);

/// row_max* = max over columns; NaN where there is one.
void RowMax(const CrossEntropy& op, const ConstTensor& logits, const Tensor& row_max);

// Log-softmax and negative log-likelihood, as torch.nn.functional.cross_entropy, and with a divided vocabulary
// torch.distributed.tensor.parallel.loss_parallel.

/// row_sum* = sum over columns of exp(x - row_max).
void RowSumOfExponentials(const CrossEntropy& op, const ConstTensor& logits, const ConstTensor& row_max,
                          const Tensor& row_sum);
/// log_softmax = x - row_max - log(row_sum).
void LogSoftmax(const CrossEntropy& op, const ConstTensor& logits, const ConstTensor& row_max,
                const ConstTensor& row_sum, const Tensor& log_softmax);
/// target* = log_softmax[label], 0 where the label is not here.
void NllForward(const CrossEntropy& op, const ConstTensor& labels, const ConstTensor& log_softmax,
                const Tensor& target);
/// loss = -sum(target) / divisor.
void NllMean(const CrossEntropy& op, const ConstTensor& target, const Tensor& loss);
/// d_log_softmax = -scale / divisor at each label that is here, else 0.
void NllBackward(const CrossEntropy& op, const ConstTensor& labels, const Tensor& d_log_softmax);
/// d_logits = d - exp(log_softmax) s, s = sum over columns of d. With a divided vocabulary d may be another rank's:
/// give `row_gradient` = -scale / divisor, which is then s in every row, and with labels below 0 `labels`, whose rows
/// have s = 0.
void LogSoftmaxBackward(const CrossEntropy& op, const ConstTensor& d_log_softmax, const ConstTensor& log_softmax,
                        const Tensor& d_logits, std::optional<double> row_gradient = std::nullopt,
                        const std::optional<ConstTensor>& labels = std::nullopt);

/// LogSoftmax with the row's maximum and sum taken inside: a contrastive loss's single pass.
void LogSoftmaxForward(const CrossEntropy& op, const ConstTensor& logits, const Tensor& log_softmax);
/// loss = -scale / divisor * sum over rows of log_softmax[label].
void NllLoss(const CrossEntropy& op, const ConstTensor& log_softmax, const ConstTensor& labels, const Tensor& loss);

// The form that saves the softmax: Megatron-LM's core/tensor_parallel/cross_entropy.py, and nanotron's.

/// softmax = x - row_max. `softmax` may be `logits`.
void SoftmaxShift(const CrossEntropy& op, const ConstTensor& logits, const ConstTensor& row_max, const Tensor& softmax);
/// target* = shifted[label], 0 where the label is not here.
void SoftmaxTarget(const CrossEntropy& op, const ConstTensor& labels, const ConstTensor& shifted, const Tensor& target);
/// In place: softmax = exp(softmax); row_sum* = sum over columns.
void SoftmaxExponential(const CrossEntropy& op, const Tensor& softmax, const Tensor& row_sum);
/// In place: softmax /= row_sum; loss = sum over rows of (log(row_sum) - target) / divisor. With labels below 0 give
/// `labels`, whose rows then count nothing.
void SoftmaxNormalise(const CrossEntropy& op, const ConstTensor& row_sum, const ConstTensor& target,
                      const Tensor& softmax, const Tensor& loss,
                      const std::optional<ConstTensor>& labels = std::nullopt);
/// In place: softmax becomes (softmax - onehot(label)) scale / divisor.
void SoftmaxBackward(const CrossEntropy& op, const ConstTensor& labels, const Tensor& softmax);

/// One kernel that turns logits into (softmax - onehot(label)) / divisor in place, and makes
/// losses[row] = (lse - x[label]) / divisor (Liger-Kernel's fused linear cross-entropy, reduction "mean"). `scale` is
/// not looked at: the backward pass multiplies by it. The whole vocabulary is here.
void CrossEntropyInPlace(const CrossEntropy& op, const ConstTensor& labels, const Tensor& logits, const Tensor& losses);
/// loss = sum of losses.
void SumLosses(const ConstTensor& losses, const Tensor& loss);

}  // namespace tidemark::kernels
