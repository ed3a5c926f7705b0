// SPDX-License-Identifier: Apache-2.0
#include "kernels/product.h"

// Without this Eigen multiplies small matrices in loops whose order depends on how memory is aligned.
#define EIGEN_GEMM_TO_COEFFBASED_THRESHOLD 0
#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>
#include <algorithm>

#include "kernels/stretch.h"

namespace tidemark::kernels {
namespace {

/// Tiles of C are kTileRows square, those of A and B kTileDepth deep: each widened element is used kTileRows times.
constexpr std::int64_t kTileRows = 256, kTileDepth = 512;

template <class C>
using RowMajor = Eigen::Matrix<C, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class C>
using InMap = Eigen::Map<const RowMajor<C>, 0, Eigen::OuterStride<>>;
template <class C>
using OutMap = Eigen::Map<RowMajor<C>, 0, Eigen::OuterStride<>>;

template <class A, class B, class C>
void AddOrSet(const A& a, const B& b, C& c, bool add) {
  if (add) {
    c.noalias() += a * b;
  } else {
    c.noalias() = a * b;
  }
}

template <class C>
std::vector<C> Vector(const Matrix<const C>& matrix) {
  std::vector<C> vector;
  for (std::int64_t i = 0; i < matrix.rows; ++i) {
    vector.insert(vector.end(), matrix.data + i * matrix.stride, matrix.data + i * matrix.stride + matrix.columns);
  }
  return vector;
}

/// y (+)= M x for y with elements `step` apart: what Eigen would do in an order that depends on addresses.
template <class C>
void TimesVector(const Matrix<const C>& m, const std::vector<C>& x, C* y, std::int64_t step, bool add) {
  std::vector<C> sums(static_cast<std::size_t>(m.transposed ? m.columns : m.rows));
  for (std::int64_t i = 0; i < m.rows; ++i) {
    const C* row = m.data + i * m.stride;
    if (m.transposed) {
      Each(m.columns, [row, sum = sums.data(), factor = x[static_cast<std::size_t>(i)]](std::int64_t j) {
        sum[j] += factor * row[j];
      });
    } else {
      sums[static_cast<std::size_t>(i)] =
          SumOf<C>(m.columns, [row, from = x.data()](std::int64_t j) { return row[j] * from[j]; });
    }
  }
  for (std::size_t i = 0; i < sums.size(); ++i) {
    C& to = y[static_cast<std::int64_t>(i) * step];
    to = add ? to + sums[i] : sums[i];
  }
}

template <class C>
void ProductOf(const Matrix<const C>& a, const Matrix<const C>& b, const Matrix<C>& c, bool add) {
  const InMap<C> left(a.data, a.rows, a.columns, Eigen::OuterStride<>(a.stride));
  const InMap<C> right(b.data, b.rows, b.columns, Eigen::OuterStride<>(b.stride));
  OutMap<C> out(c.data, c.rows, c.columns, Eigen::OuterStride<>(c.stride));
  const std::int64_t depth = a.transposed ? a.rows : a.columns;
  TIDEMARK_CHECK((a.transposed ? a.columns : a.rows) == c.rows && (b.transposed ? b.rows : b.columns) == c.columns &&
                 (b.transposed ? b.columns : b.rows) == depth);
  if (c.columns == 1) {
    TimesVector(a, Vector(b), c.data, c.stride, add);
    return;
  }
  if (c.rows == 1) {
    TimesVector(Matrix<const C>{b.data, b.rows, b.columns, b.stride, !b.transposed}, Vector(a), c.data, 1, add);
    return;
  }
  if (a.transposed && b.transposed) {
    AddOrSet(left.transpose(), right.transpose(), out, add);
  } else if (a.transposed) {
    AddOrSet(left.transpose(), right, out, add);
  } else if (b.transposed) {
    AddOrSet(left, right.transpose(), out, add);
  } else {
    AddOrSet(left, right, out, add);
  }
}

std::int64_t RowsOf(const MatrixView& view) { return view.transposed ? view.columns : view.rows; }
std::int64_t ColumnsOf(const MatrixView& view) { return view.transposed ? view.rows : view.columns; }

void CheckInside(const TensorType& type, std::int64_t begin, std::int64_t rows, std::int64_t columns,
                 std::int64_t stride) {
  TIDEMARK_CHECK(begin >= 0 && rows >= 0 && columns <= stride);
  TIDEMARK_CHECK(rows == 0 || begin + (rows - 1) * stride + columns <= type.elements);
}

/// One tile of C: what it starts from, then all products.
template <class C>
class TiledSum {
 public:
  TiledSum(std::span<const ProductTerm> terms, const ProductResult& result) : terms_(terms), result_(result) {}

  void Run() {
    for (std::int64_t row = 0; row < result_.rows; row += kTileRows) {
      for (std::int64_t column = 0; column < result_.columns; column += kTileRows) {
        Tile(row, std::min(kTileRows, result_.rows - row), column, std::min(kTileRows, result_.columns - column));
      }
    }
  }

 private:
  void Tile(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
    sum_.resize(static_cast<std::size_t>(rows * columns));
    for (std::int64_t i = 0; i < rows; ++i) {
      Start(sum_.data() + i * columns, result_.begin + (row + i) * result_.stride + column, column, columns);
    }
    for (const ProductTerm& term : terms_) {
      const std::int64_t depth = ColumnsOf(term.a);
      for (std::int64_t k = 0; k < depth; k += kTileDepth) {
        const std::int64_t deep = std::min(kTileDepth, depth - k);
        Product(a_.At(term.a, row, rows, k, deep), b_.At(term.b, k, deep, column, columns),
                Matrix<C>{sum_.data(), rows, columns, columns}, true);
      }
    }
    for (std::int64_t i = 0; i < rows; ++i) {
      Narrow(sum_.data() + i * columns, result_.tensor, result_.begin + (row + i) * result_.stride + column, columns);
    }
  }

  void Start(C* sum, std::int64_t begin, std::int64_t column, std::int64_t columns) {
    if (result_.accumulate) {
      Widen(result_.tensor, begin, columns, sum);
    } else {
      std::fill_n(sum, columns, C(0));
    }
    if (result_.row) {
      added_.resize(static_cast<std::size_t>(columns));
      Widen(*result_.row, column, columns, added_.data());
      Each(columns, [sum, added = added_.data()](std::int64_t i) { sum[i] += added[i]; });
    }
  }

  std::span<const ProductTerm> terms_;
  const ProductResult& result_;
  std::vector<C> sum_, added_;
  TileReader<C> a_, b_;
};

/// All operands are C already.
template <class C>
void SumInPlace(std::span<const ProductTerm> terms, const ProductResult& result) {
  const Matrix<C> c{Elements<C>(result.tensor) + result.begin, result.rows, result.columns, result.stride};
  bool add = result.accumulate;
  if (result.row) {
    const C* row = Elements<C>(*result.row);
    for (std::int64_t i = 0; i < c.rows; ++i) {
      Each(c.columns,
           [to = c.data + i * c.stride, row, add](std::int64_t j) { to[j] = add ? to[j] + row[j] : row[j]; });
    }
    add = true;
  }
  TileReader<C> a, b;
  for (const ProductTerm& term : terms) {
    Product(a.At(term.a, 0, RowsOf(term.a), 0, ColumnsOf(term.a)),
            b.At(term.b, 0, RowsOf(term.b), 0, ColumnsOf(term.b)), c, add);
    add = true;
  }
}

template <class C>
void SumInArithmetic(std::span<const ProductTerm> terms, const ProductResult& result) {
  bool in_place =
      result.tensor.type.dtype == kArithmetic<C> && (!result.row || result.row->type.dtype == kArithmetic<C>);
  for (const ProductTerm& term : terms) {
    in_place = in_place && term.a.tensor.type.dtype == kArithmetic<C> && term.b.tensor.type.dtype == kArithmetic<C>;
  }
  if (in_place) {
    SumInPlace<C>(terms, result);
  } else {
    TiledSum<C>(terms, result).Run();
  }
}

}  // namespace

void Product(const Matrix<const float>& a, const Matrix<const float>& b, const Matrix<float>& c, bool add) {
  ProductOf(a, b, c, add);
}
void Product(const Matrix<const double>& a, const Matrix<const double>& b, const Matrix<double>& c, bool add) {
  ProductOf(a, b, c, add);
}

MatrixView WholeMatrix(const ConstTensor& tensor, std::int64_t columns, bool transposed) {
  TIDEMARK_CHECK(columns > 0 && tensor.type.elements % columns == 0);
  return {tensor, 0, tensor.type.elements / columns, columns, columns, transposed};
}

template <class C>
Matrix<const C> TileReader<C>::At(const MatrixView& view, std::int64_t row, std::int64_t rows, std::int64_t column,
                                  std::int64_t columns) {
  if (view.transposed) {
    std::swap(row, column);
    std::swap(rows, columns);
  }
  const std::int64_t begin = view.begin + row * view.stride + column;
  if (view.tensor.type.dtype == kArithmetic<C>) {
    return {static_cast<const C*>(view.tensor.data) + begin, rows, columns, view.stride, view.transposed};
  }
  scratch_.resize(static_cast<std::size_t>(rows * columns));
  for (std::int64_t i = 0; i < rows; ++i) {
    Widen(view.tensor, begin + i * view.stride, columns, scratch_.data() + i * columns);
  }
  return {scratch_.data(), rows, columns, columns, view.transposed};
}

template class TileReader<float>;
template class TileReader<double>;

void SumOfProducts(std::span<const ProductTerm> terms, const ProductResult& c) {
  bool wide = c.tensor.type.dtype == DType::fp64 || (c.row && c.row->type.dtype == DType::fp64);
  CheckInside(c.tensor.type, c.begin, c.rows, c.columns, c.stride);
  TIDEMARK_CHECK(!c.row || c.row->type.elements == c.columns);
  for (const ProductTerm& term : terms) {
    for (const MatrixView* view : {&term.a, &term.b}) {
      CheckInside(view->tensor.type, view->begin, view->rows, view->columns, view->stride);
      wide = wide || view->tensor.type.dtype == DType::fp64;
    }
    TIDEMARK_CHECK(RowsOf(term.a) == c.rows && ColumnsOf(term.b) == c.columns && ColumnsOf(term.a) == RowsOf(term.b));
  }
  if (wide) {
    SumInArithmetic<double>(terms, c);
  } else {
    SumInArithmetic<float>(terms, c);
  }
}

}  // namespace tidemark::kernels
