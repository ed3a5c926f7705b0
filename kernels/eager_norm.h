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
/// gradient[column] (+)= sum over rows, with `accumulate`.
void ColumnSums(const Norm& op, const ConstTensor& input, const Tensor& gradient);
/// d_rstd[row] = sum over columns.
void RowSums(const Norm& op, const ConstTensor& input, const Tensor& rows);
/// y = x d_square[row]: d_square is what NormRstdBackward makes of d_rstd, or
///   -d_rstd rstd^3 / width, the gradient of the mean square times 2.
void NormSquareBackward(const Norm& op, const ConstTensor& input, const ConstTensor& d_rstd, const ConstTensor& rstd,
                        const Tensor& output);

}  // namespace tidemark::kernels
