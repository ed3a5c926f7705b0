// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "kernels/tensor.h"

namespace tidemark::kernels {

// Matrix products behind all kernels that multiply. Eigen does them, and stays behind this header.

/// A matrix in memory; its rows begin `stride` elements apart.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0, columns = 0, stride = 0;
  bool transposed = false;  ///< to be read the other way round
};

/// C (+)= A B, with each operand's dtype float or double. `c` is not transposed.
void Product(const Matrix<const float>& a, const Matrix<const float>& b, const Matrix<float>& c, bool add);
void Product(const Matrix<const double>& a, const Matrix<const double>& b, const Matrix<double>& c, bool add);

/// A matrix in a tensor of any floating dtype: `rows` rows of `columns`, the first at element `begin`.
struct MatrixView {
  ConstTensor tensor;
  std::int64_t begin = 0, rows = 0, columns = 0, stride = 0;
  bool transposed = false;
};

/// All of a tensor with rows of `columns`, or its transpose.
MatrixView WholeMatrix(const ConstTensor& tensor, std::int64_t columns, bool transposed = false);

/// Tiles of a view in the arithmetic's dtype: where they lie, or widened into scratch.
template <class C>
class TileReader {
 public:
  /// Rows and columns are those of the view after transposing. Valid until the next one is asked for.
  Matrix<const C> At(const MatrixView& view, std::int64_t row, std::int64_t rows, std::int64_t column,
                     std::int64_t columns);

 private:
  std::vector<C> scratch_;
};

struct ProductTerm {
  MatrixView a, b;
};

struct ProductResult {
  Tensor tensor;
  std::int64_t begin = 0, rows = 0, columns = 0, stride = 0;
  bool accumulate = false;
  std::optional<ConstTensor> row = std::nullopt;  ///< [columns], added to every row
};

/// C (+)= row + sum over terms of A B, rounded once. With operands of the arithmetic's dtype Eigen works on them as
/// they lie; otherwise on tiles of half a MiB at most (1 MiB in fp64), which are widened on the way.
void SumOfProducts(std::span<const ProductTerm> terms, const ProductResult& c);

}  // namespace tidemark::kernels
