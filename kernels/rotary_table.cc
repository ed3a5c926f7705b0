// SPDX-License-Identifier: Apache-2.0
#include "kernels/rotary_table.h"

#include <cmath>
#include <vector>

#include "kernels/pointwise.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

/// Row by row.
template <class C>
void FillRows(const RotaryTable& op, const Tensor& table) {
  const RotaryRow row = op.Row();
  std::vector<double> frequencies;
  for (std::int64_t pair = 0; pair < op.turned / 2; ++pair) {
    frequencies.push_back(RotaryFrequency(op.theta, op.turned, pair));
  }
  Writer<C> rows(table, row.size());
  for (std::int64_t place = 0; place < op.positions; ++place) {
    C* numbers = rows.At(place * row.size(), row.size());
    for (std::int64_t pair = 0; pair < op.turned / 2; ++pair) {
      const double angle = static_cast<double>(place) * frequencies[static_cast<std::size_t>(pair)];
      for (std::int64_t copy = 0; copy < row.copies(); ++copy) {
        numbers[row.CosineOf(pair) + copy * op.turned / 2] = static_cast<C>(std::cos(angle));
        numbers[row.SineOf(pair) + copy * op.turned / 2] = static_cast<C>(std::sin(angle));
      }
    }
    rows.Done(place * row.size(), row.size());
  }
}

}  // namespace

double RotaryFrequency(double theta, std::int64_t turned, std::int64_t pair) {
  return std::pow(theta, -2 * static_cast<double>(pair) / static_cast<double>(turned));
}

TensorType RotaryTableType(const RotaryTable& op, DType dtype) { return {dtype, op.positions * op.RowSize()}; }

void FillRotaryTable(const RotaryTable& op, const Tensor& table) {
  TIDEMARK_CHECK(op.turned % 2 == 0 && table.type == RotaryTableType(op, table.type.dtype));
  InArithmeticOf({table.type}, [&]<class C>(C) { FillRows<C>(op, table); });
}

TensorType RotaryRowsOutput(const RotaryRows& op, DType table) { return {table, op.tokens * op.table.RowSize()}; }

void TakeRotaryRows(const RotaryRows& op, const ConstTensor& table, const Tensor& rows) {
  TIDEMARK_CHECK(op.places.Of(op.sequence - 1, op.sequence) < op.table.positions);
  TIDEMARK_CHECK(table.type == RotaryTableType(op.table, table.type.dtype));
  TIDEMARK_CHECK(rows.type == RotaryRowsOutput(op, table.type.dtype));
  const std::int64_t size = op.table.RowSize();
  for (std::int64_t token = 0; token < op.tokens; ++token) {
    Copy(Slice(table, op.PlaceOf(token) * size, size), Slice(rows, token * size, size));
  }
}

}  // namespace tidemark::kernels
