// SPDX-License-Identifier: Apache-2.0
#include "kernels/eager_norm.h"

#include <array>
#include <cmath>

#include "kernels/linear.h"
#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

void CheckMatrix(const Norm& op, const TensorType& type) { TIDEMARK_CHECK(type.elements == op.rows * op.width); }
void CheckRows(const Norm& op, const TensorType& type) { TIDEMARK_CHECK(type.elements == op.rows); }

/// rows[row] = map(sum over columns, row).
template <class Map>
void ReduceRows(const Norm& op, const ConstTensor& input, const Tensor& rows, Map map) {
  CheckMatrix(op, input.type);
  CheckRows(op, rows.type);
  InArithmeticOf({input.type, rows.type}, [&]<class C>(C) {
    Reader<C> inputs(input, op.width);
    Writer<C> outputs(rows, 1);
    for (std::int64_t row = 0; row < op.rows; ++row) {
      const C* x = inputs.At(row * op.width, op.width);
      *outputs.At(row, 1) = map(SumOf<C>(op.width, [x](std::int64_t i) { return x[i]; }), row);
      outputs.Done(row, 1);
    }
  });
}

}  // namespace

void NormProduct(const Norm& op, const ConstTensor& a, const ConstTensor& b, const Tensor& product) {
  CheckMatrix(op, a.type);
  CheckMatrix(op, b.type);
  CheckMatrix(op, product.type);
  InArithmeticOf({a.type, b.type, product.type}, [&]<class C>(C) {
    Reader<C> left(a, kStretch), right(b, kStretch);
    Writer<C> products(product, kStretch);
    EachStretch(op.rows * op.width, [&](std::int64_t begin, std::int64_t count) {
      Each(count, [x = left.At(begin, count), z = right.At(begin, count),
                   y = products.At(begin, count)](std::int64_t i) { y[i] = x[i] * z[i]; });
      products.Done(begin, count);
    });
  });
}

void NormReciprocalRoot(const Norm& op, const ConstTensor& squares, const Tensor& rstd) {
  ReduceRows(op, squares, rstd, [&]<class C>(C sum, std::int64_t) {
    return C(1) / std::sqrt(sum / static_cast<C>(op.width) + static_cast<C>(op.eps));
  });
}

void NormScaleRows(const Norm& op, const ConstTensor& input, const ConstTensor& rows, const Tensor& output) {
  CheckMatrix(op, input.type);
  CheckMatrix(op, output.type);
  CheckRows(op, rows.type);
  InArithmeticOf({input.type, rows.type, output.type}, [&]<class C>(C) {
    Reader<C> inputs(input, op.width), factors(rows, 1);
    Writer<C> outputs(output, op.width);
    for (std::int64_t row = 0; row < op.rows; ++row) {
      const std::int64_t begin = row * op.width;
      Each(op.width, [x = inputs.At(begin, op.width), y = outputs.At(begin, op.width),
                      factor = *factors.At(row, 1)](std::int64_t i) { y[i] = x[i] * factor; });
      outputs.Done(begin, op.width);
    }
  });
}

void NormScaleColumns(const Norm& op, const ConstTensor& input, const ConstTensor& weight, const Tensor& output) {
  CheckMatrix(op, input.type);
  CheckMatrix(op, output.type);
  TIDEMARK_CHECK(weight.type.elements == op.width);
  InArithmeticOf({input.type, weight.type, output.type}, [&]<class C>(C) {
    Reader<C> inputs(input, op.width), weights(weight, op.width);
    Writer<C> outputs(output, op.width);
    const C* w = weights.At(0, op.width);
    for (std::int64_t row = 0; row < op.rows; ++row) {
      const std::int64_t begin = row * op.width;
      Each(op.width, [x = inputs.At(begin, op.width), y = outputs.At(begin, op.width), w](std::int64_t i) {
        y[i] = x[i] * w[i];
      });
      outputs.Done(begin, op.width);
    }
  });
}

void ColumnSums(const Norm& op, const ConstTensor& input, const Tensor& gradient) {
  const std::array<ConstTensor, 1> inputs = {input};
  LinearBiasGradient({.rows = op.rows, .out = op.width, .accumulate = op.accumulate}, inputs, gradient);
}

void NormRstdGradient(const Norm& op, const ConstTensor& products, const ConstTensor& rstd, const Tensor& rows) {
  CheckRows(op, rstd.type);
  InArithmeticOf({products.type, rows.type}, [&]<class C>(C) {
    Reader<C> rstds(rstd, 1);
    ReduceRows(op, products, rows, [&](auto sum, std::int64_t row) {
      using D = decltype(sum);
      const D r = static_cast<D>(*rstds.At(row, 1));
      return -r * r * r * sum / static_cast<D>(op.width);
    });
  });
}

}  // namespace tidemark::kernels
