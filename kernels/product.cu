// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "kernels/product_blas.h"
#include "kernels/product_cuda.h"
#include "kernels/team.cuh"

namespace tidemark::kernels::cuda {
namespace {

std::int64_t RowsOf(const MatrixView& view) { return view.transposed ? view.columns : view.rows; }
std::int64_t ColumnsOf(const MatrixView& view) { return view.transposed ? view.rows : view.columns; }

/// Where the first element of a matrix lies behind that of the first matrix.
__host__ __device__ inline std::int64_t At(const Steps& steps, std::int64_t outer, std::int64_t inner,
                                           std::int64_t addend) {
  return outer * steps.outer + inner * steps.inner + addend * steps.addend;
}

template <class C>
struct Factor {
  Input<C> elements;
  std::int64_t begin = 0, row_step = 0, column_step = 0;
  Steps steps;
};

template <class C>
Factor<C> FactorOf(const MatrixView& view, const Steps& steps) {
  return {view.tensor, view.begin, view.transposed ? 1 : view.stride, view.transposed ? view.stride : 1, steps};
}

template <class C>
struct Term {
  Factor<C> a, b;
  std::int64_t addends = 0, depth = 0;
};

/// One element of C: its products one after the other, so that n of them lose n roundings.
template <class C>
struct SumElement {
  Term<C> terms[kMostTerms];
  int count;
  bool accumulate, has_row;
  Input<C> row;
  Output<C> c;
  std::int64_t begin, rows, columns, stride, inner;
  Steps steps;

  __host__ __device__ void operator()(std::int64_t i) const {
    const std::int64_t x = i % columns, y = i / columns % rows, matrix = i / columns / rows;
    const std::int64_t at = begin + At(steps, matrix / inner, matrix % inner, 0) + y * stride + x;
    C sum = (accumulate ? c[at] : C(0)) + (has_row ? row[x] : C(0));
    for (int t = 0; t < count; ++t) {
      const Term<C>& term = terms[t];
      for (std::int64_t addend = 0; addend < term.addends; ++addend) {
        const std::int64_t a = term.a.begin + At(term.a.steps, matrix / inner, matrix % inner, addend),
                           b = term.b.begin + At(term.b.steps, matrix / inner, matrix % inner, addend);
        for (std::int64_t k = 0; k < term.depth; ++k) {
          sum += term.a.elements[a + y * term.a.row_step + k * term.a.column_step] *
                 term.b.elements[b + k * term.b.row_step + x * term.b.column_step];
        }
      }
    }
    c.Set(at, sum);
  }
};

template <class C>
void SumByElements(std::span<const BatchTerm> terms, const BatchResult& c, const Queue& queue) {
  const ProductResult& first = c.first;
  SumElement<C> body{{},
                     static_cast<int>(terms.size()),
                     first.accumulate,
                     first.row.has_value(),
                     first.row ? Input<C>(*first.row) : Input<C>(),
                     first.tensor,
                     first.begin,
                     first.rows,
                     first.columns,
                     first.stride,
                     c.inner,
                     c.steps};
  std::transform(terms.begin(), terms.end(), body.terms, [](const BatchTerm& term) {
    return Term<C>{FactorOf<C>(term.a, term.a_steps), FactorOf<C>(term.b, term.b_steps), term.addends,
                   ColumnsOf(term.a)};
  });
  EachElement(queue, c.outer * c.inner * first.rows * first.columns, body);
}

void SumByElements(std::span<const BatchTerm> terms, const BatchResult& c, const Queue& queue) {
  bool wide = c.first.tensor.type.dtype == DType::fp64 || (c.first.row && c.first.row->type.dtype == DType::fp64);
  for (const BatchTerm& term : terms) {
    wide = wide || term.a.tensor.type.dtype == DType::fp64 || term.b.tensor.type.dtype == DType::fp64;
  }
  if (wide) {
    SumByElements<double>(terms, c, queue);
  } else {
    SumByElements<float>(terms, c, queue);
  }
}

/// One outer result of all.
BatchResult Outer(BatchResult c, std::int64_t outer) {
  c.first.begin += At(c.steps, outer, 0, 0);
  c.outer = 1;
  return c;
}
BatchTerm Addend(BatchTerm term, std::int64_t outer, std::int64_t addend) {
  term.a.begin += At(term.a_steps, outer, 0, addend);
  term.b.begin += At(term.b_steps, outer, 0, addend);
  term.addends = 1;
  return term;
}

void SumInWorkspace(const std::vector<BatchTerm>& terms, const BatchResult& c, const Queue& queue, std::int64_t room);

/// Rows of fp32 that have room in the upper half of the workspace.
std::int64_t RowsInWorkspace(const Queue& queue, std::int64_t columns) {
  return columns == 0 ? 0 : HalvesOf(queue).upper_bytes / (4 * columns);
}

/// A product that the library has no way for, or none with a row: then it may have one without.
void SumOne(const BatchTerm& term, const BatchResult& c, const Queue& queue, bool is_known) {
  const std::int64_t room = RowsInWorkspace(queue, c.first.columns);
  if (is_known && c.first.row && room > 0 && c.first.tensor.type.dtype != DType::fp64) {
    SumInWorkspace({term}, c, queue, room);
  } else {
    SumByElements({&term, 1}, c, queue);
  }
}

/// Each product by the library, or where it has no way for it by our kernel: the first adds or overwrites as `c` says,
/// all others add.
void SumByLibrary(std::span<const BatchTerm> terms, const BatchResult& c, const Queue& queue) {
  for (std::int64_t outer = 0; outer < c.outer; ++outer) {
    BatchResult result = Outer(c, outer);
    for (const BatchTerm& term : terms) {
      for (std::int64_t addend = 0; addend < term.addends; ++addend) {
        const BatchTerm one = Addend(term, outer, addend);
        const std::optional<BlasProduct> product = BlasProductOf(one, result);
        if (!product || !queue.blas->Multiply(*product, BlasOperandsOf(one, result), queue)) {
          SumOne(one, result, queue, product.has_value());
        }
        result.first.accumulate = true;
        result.first.row.reset();
      }
    }
  }
}

/// C (+)= row + sums, rows of sums one behind the other.
struct RoundRow {
  Input<float> sums;
  bool accumulate, has_row;
  Input<float> row;
  Output<float> c;
  std::int64_t begin, columns, stride;
  __host__ __device__ void operator()(const Team& team, std::int64_t y) const {
    team.Each(0, columns, [&](auto x) {
      auto sum = sums[x + y * columns];
      if (has_row) {
        sum = Map(std::plus<>(), row[x], sum);
      }
      const auto at = x + (begin + y * stride);
      c.Set(at, accumulate ? Map(std::plus<>(), c[at], sum) : sum);
    });
  }
};

MatrixView RowsFrom(MatrixView view, std::int64_t row, std::int64_t rows) {
  view.begin += row * (view.transposed ? 1 : view.stride);
  (view.transposed ? view.columns : view.rows) = rows;
  return view;
}

/// Some rows of one matrix, in fp32 at `sums`, then rounded.
void SumRows(std::span<const BatchTerm> terms, const ProductResult& c, const Tensor& sums, const Queue& queue) {
  SumByLibrary(terms, {{sums, 0, c.rows, c.columns, c.columns}}, queue);
  EachRow(queue, c.rows,
          RoundRow{sums, c.accumulate, c.row.has_value(), c.row ? Input<float>(*c.row) : Input<float>(), c.tensor,
                   c.begin, c.columns, c.stride});
}

/// With the upper half of the workspace for sums: as many rows at a time as have room there.
void SumInWorkspace(const std::vector<BatchTerm>& terms, const BatchResult& c, const Queue& queue, std::int64_t room) {
  const Halves halves = HalvesOf(queue);
  for (std::int64_t matrix = 0; matrix < c.outer * c.inner; ++matrix) {
    const std::int64_t outer = matrix / c.inner, inner = matrix % c.inner;
    for (std::int64_t row = 0; row < c.first.rows; row += room) {
      ProductResult result = c.first;
      result.rows = std::min(room, c.first.rows - row);
      result.begin += At(c.steps, outer, inner, 0) + row * result.stride;
      std::vector<BatchTerm> some = terms;
      for (BatchTerm& term : some) {
        term.a = RowsFrom(term.a, row, result.rows);
        term.a.begin += At(term.a_steps, outer, inner, 0);
        term.b.begin += At(term.b_steps, outer, inner, 0);
      }
      SumRows(some, result, {{DType::fp32, result.rows * result.columns}, halves.upper}, halves.library);
    }
  }
}

void CheckOperands(std::span<const BatchTerm> terms, const BatchResult& c) {
  TIDEMARK_CHECK(terms.size() <= kMostTerms && (!c.first.row || c.first.row->type.elements == c.first.columns));
  const auto check_last = [&](const TensorType& type, std::int64_t begin, std::int64_t rows, std::int64_t columns,
                              std::int64_t stride, const Steps& steps, std::int64_t addends) {
    TIDEMARK_CHECK(IsFloating(type.dtype) && begin >= 0 && columns <= stride);
    const std::int64_t last = begin + At(steps, c.outer - 1, c.inner - 1, addends - 1);
    TIDEMARK_CHECK(rows == 0 || addends == 0 || last + (rows - 1) * stride + columns <= type.elements);
  };
  check_last(c.first.tensor.type, c.first.begin, c.first.rows, c.first.columns, c.first.stride, c.steps, 1);
  for (const BatchTerm& term : terms) {
    TIDEMARK_CHECK(RowsOf(term.a) == c.first.rows && ColumnsOf(term.b) == c.first.columns &&
                   ColumnsOf(term.a) == RowsOf(term.b));
    const MatrixView &a = term.a, &b = term.b;
    check_last(a.tensor.type, a.begin, a.rows, a.columns, a.stride, term.a_steps, term.addends);
    check_last(b.tensor.type, b.begin, b.rows, b.columns, b.stride, term.b_steps, term.addends);
  }
}

/// Whether the library has the dtypes of every product.
bool HasAll(std::span<const BatchTerm> terms, const BatchResult& c) {
  const BatchResult result = Outer(c, 0);
  return std::all_of(terms.begin(), terms.end(),
                     [&](const BatchTerm& term) { return BlasProductOf(Addend(term, 0, 0), result).has_value(); });
}

}  // namespace

Halves HalvesOf(const Queue& queue) {
  if (queue.workspace == nullptr) {
    return {queue};
  }
  constexpr std::int64_t kAligned = 256;
  Halves halves{queue, static_cast<char*>(queue.workspace), queue.workspace_bytes / 2};
  halves.library.workspace_bytes = halves.upper_bytes / kAligned * kAligned;
  halves.upper += halves.library.workspace_bytes;
  return halves;
}

void SumOfProducts(std::span<const BatchTerm> terms, const BatchResult& c, const Queue& queue) {
  if (c.outer * c.inner * c.first.rows * c.first.columns == 0) {
    return;
  }
  CheckOperands(terms, c);
  std::int64_t addends = 0;
  for (const BatchTerm& term : terms) {
    addends += term.addends;
  }
  const DType dtype = c.first.tensor.type.dtype;
  const bool is_rounded = dtype == DType::bf16 || dtype == DType::fp16;
  if (queue.blas == nullptr || addends == 0 || !HasAll(terms, c)) {
    SumByElements(terms, c, queue);
  } else if (addends == 1 || !is_rounded) {
    SumByLibrary(terms, c, queue);
  } else if (const std::int64_t room = RowsInWorkspace(queue, c.first.columns); room > 0) {
    SumInWorkspace({terms.begin(), terms.end()}, c, queue, room);
  } else {
    SumByElements(terms, c, queue);
  }
}

}  // namespace tidemark::kernels::cuda
