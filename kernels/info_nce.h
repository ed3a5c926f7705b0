// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/tensor.h"

namespace tidemark::kernels {

/// The similarities that InfoNCE (van den Oord et al., 2018) puts through a cross-entropy (cross_entropy.h:
/// LogSoftmaxForward, NllLoss, NllBackward, LogSoftmaxBackward). X holds the queries of `ranks` ranks, `batch` each; Y
/// `targets` passages for each query, of which the first is its own: logits = X Y^T / temperature,
/// [ranks batch, ranks batch targets], and row i's label is i targets.
///
/// Where one encoder makes both sides, both operands are the one tensor [ranks, batch (1 + targets), width], each
/// rank's queries in front; the kernel knows by the number of elements. Gradients then go to the one tensor, given
/// twice.
struct InfoNce {
  std::int64_t ranks = 1, batch = 0, targets = 1, width = 0;
  double temperature = 1;

  std::int64_t rows() const { return ranks * batch; }
  std::int64_t columns() const { return rows() * targets; }
};

TensorType InfoNceLabelsOutput(const InfoNce& op);
TensorType SimilarityOutput(const InfoNce& op, DType dtype);

void InfoNceLabels(const InfoNce& op, const Tensor& labels);
void SimilarityForward(const InfoNce& op, const ConstTensor& x, const ConstTensor& y, const Tensor& logits);
/// dX = d_logits Y / temperature, dY = d_logits^T X / temperature.
void SimilarityBackward(const InfoNce& op, const ConstTensor& d_logits, const ConstTensor& x, const ConstTensor& y,
                        const Tensor& dx, const Tensor& dy);

/// What GradCache differentiates in place of the loss (Gao et al., Scaling Deep Contrastive Learning Batch Size under
/// Memory Limited Setup, 2021): surrogate = sum of representation cache, one element, where `cache` holds the loss's
/// gradient of these representations. Its gradient is the cache: Copy (pointwise.h).
void SurrogateForward(const ConstTensor& representation, const ConstTensor& cache, const Tensor& surrogate);

/// The first of `sequence` tokens of each of `samples`, and backward: zeros for all others.
struct Pool {
  std::int64_t samples = 0, sequence = 0, width = 0;
};

TensorType PoolOutput(const Pool& op, DType dtype);
TensorType PoolGradientOutput(const Pool& op, DType dtype);

void PoolForward(const Pool& op, const ConstTensor& tokens, const Tensor& pooled);
void PoolBackward(const Pool& op, const ConstTensor& pooled_gradient, const Tensor& tokens_gradient);

}  // namespace tidemark::kernels
