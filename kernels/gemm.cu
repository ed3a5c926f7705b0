// SPDX-License-Identifier: Apache-2.0
#include "kernels/gemm_cuda.h"

#include "base/check.h"
#include "kernels/product_cuda.h"

namespace tidemark::kernels::cuda {
namespace {

/// The first of consecutive matrices, `rows` x `columns` when it has been transposed.
MatrixView FirstMatrix(const ConstTensor& tensor, std::int64_t rows, std::int64_t columns, bool transposed) {
  return transposed ? MatrixView{tensor, 0, columns, rows, rows, true} : MatrixView{tensor, 0, rows, columns, columns};
}

}  // namespace

void Multiply(const Gemm& op, const ConstTensor& a, const ConstTensor& b, const Tensor& c, const Queue& queue) {
  TIDEMARK_CHECK(a.type.elements == op.batch * op.m * op.k && b.type.elements == op.batch * op.k * op.n);
  TIDEMARK_CHECK(c.type == GemmOutput(op, c.type.dtype));
  const BatchTerm term{FirstMatrix(a, op.m, op.k, op.transpose_a),
                       FirstMatrix(b, op.k, op.n, op.transpose_b),
                       {.inner = op.m * op.k},
                       {.inner = op.k * op.n}};
  const BatchResult result{{c, 0, op.m, op.n, op.n, op.accumulate}, {.inner = op.m * op.n}, 1, op.batch};
  SumOfProducts({&term, 1}, result, queue);
}

}  // namespace tidemark::kernels::cuda
