// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/eager_norm.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/eager_norm.h on a GPU.

void NormProduct(const Norm& op, const ConstTensor& a, const ConstTensor& b, const Tensor& product, const Queue& queue);
void NormReciprocalRoot(const Norm& op, const ConstTensor& squares, const Tensor& rstd, const Queue& queue);
void NormScaleRows(const Norm& op, const ConstTensor& input, const ConstTensor& rows, const Tensor& output,
                   const Queue& queue);
void NormScaleColumns(const Norm& op, const ConstTensor& input, const ConstTensor& weight, const Tensor& output,
                      const Queue& queue);
void ColumnSums(const Norm& op, const ConstTensor& input, const Tensor& gradient, const Queue& queue);
void NormRstdGradient(const Norm& op, const ConstTensor& products, const ConstTensor& rstd, const Tensor& rows,
                      const Queue& queue);

}  // namespace tidemark::kernels::cuda
