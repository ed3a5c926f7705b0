// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>

#include "kernels/product.h"
#include "kernels/queue.h"

namespace tidemark::kernels::cuda {

// kernels/product.h on a GPU, for many matrices at a time.

/// How far apart, in elements, an operand's matrices lie: 0 where there is one for all.
struct Steps {
  std::int64_t outer = 0, inner = 0, addend = 0;
};

/// `addends` products; the views are those of the first one, of the first result.
struct BatchTerm {
  MatrixView a, b;
  Steps a_steps = {}, b_steps = {};
  std::int64_t addends = 1;
};

/// outer x inner matrices, of which `first` is the first.
struct BatchResult {
  ProductResult first;
  Steps steps = {};
  std::int64_t outer = 1, inner = 1;
};

/// A queue whose library works in the lower half of its workspace, while what that multiplies or makes lies in the
/// upper.
struct Halves {
  Queue library;
  char* upper = nullptr;
  std::int64_t upper_bytes = 0;  ///< none without a workspace
};
Halves HalvesOf(const Queue& queue);

/// As many terms as SumOfProducts takes at once.
inline constexpr std::size_t kMostTerms = 8;

/// C (+)= row + sum over terms and their addends of A B, for all outer x inner C, rounded once. With the queue's `blas`
/// where that has the operands' dtypes (product_blas.h); sums of several products then stand in the workspace until
/// they are rounded. What it cannot do, and everything without it, is done by a kernel that takes all dtypes.
void SumOfProducts(std::span<const BatchTerm> terms, const BatchResult& c, const Queue& queue);

}  // namespace tidemark::kernels::cuda
