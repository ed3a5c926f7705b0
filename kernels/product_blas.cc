// SPDX-License-Identifier: Apache-2.0
#include "kernels/product_blas.h"

#include "base/check.h"

namespace tidemark::kernels::cuda {
namespace {

bool IsTwoBytes(DType dtype) { return dtype == DType::bf16 || dtype == DType::fp16; }

bool HasDTypes(const BatchTerm& term, const ProductResult& c) {
  const DType factor = term.a.tensor.type.dtype, result = c.tensor.type.dtype;
  const bool is_floating = IsTwoBytes(factor) || factor == DType::fp32 || factor == DType::fp64;
  return is_floating && term.b.tensor.type.dtype == factor &&
         (result == factor || (IsTwoBytes(factor) && result == DType::fp32)) && (!c.row || c.row->type.dtype == result);
}

BlasMatrix ByColumns(const TensorType& type, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                     std::int64_t step) {
  return {type.dtype, columns, rows, stride, step};
}
BlasMatrix ByColumns(const MatrixView& view, std::int64_t step) {
  return ByColumns(view.tensor.type, view.rows, view.columns, view.stride, step);
}

template <class AnyTensor>
auto* At(const AnyTensor& tensor, std::int64_t begin) {
  return Slice(tensor, begin, tensor.type.elements - begin).data;
}

}  // namespace

std::optional<BlasProduct> BlasProductOf(const BatchTerm& term, const BatchResult& c) {
  TIDEMARK_CHECK(term.addends == 1 && c.outer == 1);
  const ProductResult& first = c.first;
  const std::int64_t depth = term.a.transposed ? term.a.rows : term.a.columns;
  if (!HasDTypes(term, first) || depth == 0 || (first.row && c.inner > 1)) {
    return std::nullopt;
  }
  const bool is_batch = c.inner > 1;
  return BlasProduct{
      ByColumns(term.b, is_batch ? term.b_steps.inner : 0),
      ByColumns(term.a, is_batch ? term.a_steps.inner : 0),
      ByColumns(first.tensor.type, first.rows, first.columns, first.stride, is_batch ? c.steps.inner : 0),
      term.b.transposed,
      term.a.transposed,
      first.accumulate,
      first.row.has_value(),
      c.inner};
}

BlasOperands BlasOperandsOf(const BatchTerm& term, const BatchResult& c) {
  return {At(term.b.tensor, term.b.begin), At(term.a.tensor, term.a.begin), c.first.row ? c.first.row->data : nullptr,
          At(c.first.tensor, c.first.begin)};
}

}  // namespace tidemark::kernels::cuda
