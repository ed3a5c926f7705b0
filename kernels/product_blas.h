// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "kernels/blas.h"
#include "kernels/product_cuda.h"

namespace tidemark::kernels::cuda {

/// What a BLAS is asked for, of a term of one addend and results that have no outer steps. Rows of ours are its
/// columns, so that it sees the transpose of every matrix: it is asked for C^T = B^T A^T, with our B as its A.
///
/// None where cuBLASLt does not have the dtypes (https://docs.nvidia.com/cuda/cublas/#cublasltmatmul): both factors
/// have one, in which, or for two bytes in fp32, the result is as well; a row has the result's, and is added to one
/// matrix. None for a sum of no products.
std::optional<BlasProduct> BlasProductOf(const BatchTerm& term, const BatchResult& c);
BlasOperands BlasOperandsOf(const BatchTerm& term, const BatchResult& c);

}  // namespace tidemark::kernels::cuda
