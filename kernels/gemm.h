// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/tensor.h"

namespace tidemark::kernels {

/// C[m,n] (+)= op(A)[m,k] op(B)[k,n], `batch` times on consecutive matrices. op(A) is A itself, or with `transpose_a`
/// the transpose of an A that is stored as [k,m]; B likewise. With `accumulate` the product is added to C, in the
/// arithmetic's dtype, before C is rounded. C is none of the inputs.
struct Gemm {
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  bool transpose_a = false, transpose_b = false;
  bool accumulate = false;
};

TensorType GemmOutput(const Gemm& op, DType output);
void Multiply(const Gemm& op, const ConstTensor& a, const ConstTensor& b, const Tensor& c);

}  // namespace tidemark::kernels
