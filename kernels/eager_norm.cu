// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <functional>

#include "kernels/columns.cuh"
#include "kernels/eager_norm_cuda.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

void CheckMatrix(const Norm& op, const TensorType& type) { TIDEMARK_CHECK(type.elements == op.rows * op.width); }
void CheckRows(const Norm& op, const TensorType& type) { TIDEMARK_CHECK(type.elements == op.rows); }

template <class C>
struct ProductElement {
  Input<C> a, b;
  Output<C> product;
  template <class At>
  __host__ __device__ void operator()(At at) const {
    product.Set(at, Map(std::multiplies<>(), a[at], b[at]));
  }
};

template <class C>
struct ReciprocalRootRow {
  std::int64_t width;
  C eps;
  Input<C> squares;
  Output<C> rstd;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const C sum = team.Sum<C>(row * width, (row + 1) * width, [&](auto at) { return squares[at]; });
    team.Each(1, [&](std::int64_t) { rstd.Set(row, C(1) / std::sqrt(sum / static_cast<C>(width) + eps)); });
  }
};

/// y = x times a factor of the row, or of the column.
template <class C>
struct ScaleRow {
  std::int64_t width;
  bool by_row;
  Input<C> input, factors;
  Output<C> output;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const std::int64_t begin = row * width, end = begin + width;
    if (by_row) {
      const C factor = factors[row];
      team.Each(begin, end, [&](auto at) { output.Set(at, Map([&](C x) { return x * factor; }, input[at])); });
    } else {
      team.Each(begin, end, [&](auto at) { output.Set(at, Map(std::multiplies<>(), input[at], factors[at - begin])); });
    }
  }
};

template <class C>
struct SumColumn {
  std::int64_t width;
  bool accumulate;
  Input<C> input;
  Output<C> sums;
  template <class At>
  __host__ __device__ auto Term(std::int64_t row, At column) const {
    return input[column + row * width];
  }
  __host__ __device__ void Store(std::int64_t column, C sum) const {
    sums.Set(column, accumulate ? sums[column] + sum : sum);
  }
};

template <class C>
struct RstdGradientRow {
  std::int64_t width;
  Input<C> products, rstd;
  Output<C> rows;
  __host__ __device__ void operator()(const Team& team, std::int64_t row) const {
    const C sum = team.Sum<C>(row * width, (row + 1) * width, [&](auto at) { return products[at]; });
    const C r = rstd[row];
    team.Each(1, [&](std::int64_t) { rows.Set(row, -r * r * r * sum / static_cast<C>(width)); });
  }
};

void Scale(const Norm& op, bool by_row, const ConstTensor& input, const ConstTensor& factors, const Tensor& output,
           const Queue& queue) {
  CheckMatrix(op, input.type);
  CheckMatrix(op, output.type);
  TIDEMARK_CHECK(factors.type.elements == (by_row ? op.rows : op.width));
  InArithmeticOf({input.type, factors.type, output.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, ScaleRow<C>{op.width, by_row, input, factors, output});
  });
}

}  // namespace

void NormProduct(const Norm& op, const ConstTensor& a, const ConstTensor& b, const Tensor& product,
                 const Queue& queue) {
  CheckMatrix(op, a.type);
  CheckMatrix(op, b.type);
  CheckMatrix(op, product.type);
  InArithmeticOf({a.type, b.type, product.type}, [&]<class C>(C) {
    EachElement(queue, product.type.elements, ProductElement<C>{a, b, product});
  });
}

void NormReciprocalRoot(const Norm& op, const ConstTensor& squares, const Tensor& rstd, const Queue& queue) {
  CheckMatrix(op, squares.type);
  CheckRows(op, rstd.type);
  InArithmeticOf({squares.type, rstd.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, ReciprocalRootRow<C>{op.width, static_cast<C>(op.eps), squares, rstd});
  });
}

void NormScaleRows(const Norm& op, const ConstTensor& input, const ConstTensor& rows, const Tensor& output,
                   const Queue& queue) {
  Scale(op, true, input, rows, output, queue);
}

void NormScaleColumns(const Norm& op, const ConstTensor& input, const ConstTensor& weight, const Tensor& output,
                      const Queue& queue) {
  Scale(op, false, input, weight, output, queue);
}

void ColumnSums(const Norm& op, const ConstTensor& input, const Tensor& gradient, const Queue& queue) {
  CheckMatrix(op, input.type);
  TIDEMARK_CHECK(gradient.type.elements == op.width);
  InArithmeticOf({input.type, gradient.type}, [&]<class C>(C) {
    EachColumn<C>(queue, op.rows, op.width, SumColumn<C>{op.width, op.accumulate, input, gradient});
  });
}

void NormRstdGradient(const Norm& op, const ConstTensor& products, const ConstTensor& rstd, const Tensor& rows,
                      const Queue& queue) {
  CheckMatrix(op, products.type);
  CheckRows(op, rstd.type);
  CheckRows(op, rows.type);
  InArithmeticOf({products.type, rows.type}, [&]<class C>(C) {
    EachRow(queue, op.rows, RstdGradientRow<C>{op.width, products, rstd, rows});
  });
}

}  // namespace tidemark::kernels::cuda
