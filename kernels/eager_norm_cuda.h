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

namespace tidemark::kernels::on {

inline constexpr OnQueue NormProduct{&kernels::NormProduct, &cuda::NormProduct};
inline constexpr OnQueue NormReciprocalRoot{&kernels::NormReciprocalRoot, &cuda::NormReciprocalRoot};
inline constexpr OnQueue NormScaleRows{&kernels::NormScaleRows, &cuda::NormScaleRows};
inline constexpr OnQueue NormScaleColumns{&kernels::NormScaleColumns, &cuda::NormScaleColumns};
inline constexpr OnQueue ColumnSums{&kernels::ColumnSums, &cuda::ColumnSums};
inline constexpr OnQueue NormRstdGradient{&kernels::NormRstdGradient, &cuda::NormRstdGradient};

}  // namespace tidemark::kernels::on
