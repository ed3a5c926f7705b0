// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm.h"

#include "base/check.h"
#include "kernels/product.h"

namespace tidemark::kernels {

TensorType GemmOutput(const Gemm& op, DType output) { return {output, op.batch * op.m * op.n}; }

void Multiply(const Gemm& op, const ConstTensor& a, const ConstTensor& b, const Tensor& c) {
  TIDEMARK_CHECK(a.type.elements == op.batch * op.m * op.k && b.type.elements == op.batch * op.k * op.n);
  TIDEMARK_CHECK(c.type == GemmOutput(op, c.type.dtype));
  for (std::int64_t i = 0; i < op.batch; ++i) {
    const ProductTerm term{
        WholeMatrix(Slice(a, i * op.m * op.k, op.m * op.k), op.transpose_a ? op.m : op.k, op.transpose_a),
        WholeMatrix(Slice(b, i * op.k * op.n, op.k * op.n), op.transpose_b ? op.k : op.n, op.transpose_b)};
    SumOfProducts({&term, 1}, {c, i * op.m * op.n, op.m, op.n, op.n, op.accumulate});
  }
}

}  // namespace tidemark::kernels
