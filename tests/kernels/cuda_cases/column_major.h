// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/check.h"
#include "kernels/blas.h"
#include "kernels/stretch.h"

namespace tidemark::kernels::cuda {

/// Does on the host's memory what a BLAS is asked for, by the definition of column-major matrices, and refuses what
/// cuBLASLt would.
class ColumnMajor final : public Blas {
 public:
  bool Multiply(const BlasProduct& p, const BlasOperands& operands, const Queue&) override {
    CheckMatrix(p.a);
    CheckMatrix(p.b);
    CheckMatrix(p.d);
    const std::int64_t depth = p.transpose_a ? p.a.rows : p.a.columns;
    TIDEMARK_CHECK((p.transpose_a ? p.a.columns : p.a.rows) == p.d.rows);
    TIDEMARK_CHECK((p.transpose_b ? p.b.rows : p.b.columns) == p.d.columns);
    TIDEMARK_CHECK((p.transpose_b ? p.b.columns : p.b.rows) == depth);
    TIDEMARK_CHECK(p.batch == 1 || (p.d.step != 0 && !p.bias));
    ++products_;
    const std::vector<double> a = All(p.a, p.batch, operands.a), b = All(p.b, p.batch, operands.b);
    const std::vector<double> bias = p.bias ? Widened({{p.d.dtype, p.d.rows}, operands.bias}) : std::vector<double>();
    for (std::int64_t i = 0; i < p.batch * p.d.rows * p.d.columns; ++i) {
      const std::int64_t matrix = i / (p.d.rows * p.d.columns), row = i % p.d.rows, column = i / p.d.rows % p.d.columns;
      const std::int64_t at = At(p.d, matrix, row, column);
      const Tensor d{{p.d.dtype, at + 1}, operands.d};
      double sum = 0;
      if (p.accumulate) {
        Widen(d, at, 1, &sum);
      }
      sum += p.bias ? bias.at(static_cast<std::size_t>(row)) : 0;
      for (std::int64_t k = 0; k < depth; ++k) {
        const std::int64_t at_a = At(p.a, matrix, p.transpose_a ? k : row, p.transpose_a ? row : k),
                           at_b = At(p.b, matrix, p.transpose_b ? column : k, p.transpose_b ? k : column);
        sum += a.at(static_cast<std::size_t>(at_a)) * b.at(static_cast<std::size_t>(at_b));
      }
      Narrow(&sum, d, at, 1);
    }
    return true;
  }

  int products() const { return products_; }

 private:
  static void CheckMatrix(const BlasMatrix& matrix) {
    TIDEMARK_CHECK(matrix.rows > 0 && matrix.columns > 0 && matrix.leading >= matrix.rows);
  }
  static std::int64_t At(const BlasMatrix& m, std::int64_t matrix, std::int64_t row, std::int64_t column) {
    return matrix * m.step + column * m.leading + row;
  }
  static std::vector<double> Widened(const ConstTensor& tensor) {
    std::vector<double> values(static_cast<std::size_t>(tensor.type.elements));
    Widen(tensor, 0, tensor.type.elements, values.data());
    return values;
  }
  static std::vector<double> All(const BlasMatrix& m, std::int64_t batch, const void* data) {
    return Widened({{m.dtype, At(m, batch - 1, m.rows - 1, m.columns - 1) + 1}, data});
  }

  int products_ = 0;
};

}  // namespace tidemark::kernels::cuda
