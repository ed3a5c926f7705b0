// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/norm.h"

namespace tidemark::kernels {

// RMSNorm in a framework's single operations, on [rows, width]; casts are Copy (pointwise.h), the weight's gradient is
// ColumnSums of NormProduct(gradient, xhat), the two parts of dx are joined by Add.

/// y = a b, element by element: squares, rows of the weight's gradient, products for rstd's.
void NormProduct(const Norm& op, const ConstTensor& a, const ConstTensor& b, const Tensor& product);
/// rstd[row] = 1 / sqrt(mean(squares) + eps), in the dtype of the squares.
void NormReciprocalRoot(const Norm& op, const ConstTensor& squares, const Tensor& rstd);
/// y[row] = x[row] s[row]: x / rms; and backward the gradient that does not go through rstd.
void NormScaleRows(const Norm& op, const ConstTensor& input, const ConstTensor& rows, const Tensor& output);
/// y = x w, w [width].
void NormScaleColumns(const Norm& op, const ConstTensor& input, const ConstTensor& weight, const Tensor& output);
/// gradient[column] (+)= sum over rows, with `accumulate`; 0 of no rows.
void ColumnSums(const Norm& op, const ConstTensor& input, const Tensor& gradient);
/// rows[row] = -rstd^3 / width * sum over columns of products, where products = dxhat x. That is the gradient of rstd
/// taken on to the mean square, -rstd^3 / 2 of it, times 2 / width: x times it is dx's part through the squares.
void NormRstdGradient(const Norm& op, const ConstTensor& products, const ConstTensor& rstd, const Tensor& rows);

}  // namespace tidemark::kernels
