// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/check.h"
#include "kernels/linear.h"
#include "kernels/product.h"

namespace tidemark::kernels {

// How linear.h's operands lie, for its versions on a processor and on a GPU.

/// Calls `body(part, first, width)` for each tensor, whose columns are outputs [first, first + width).
template <class Tensors, class Body>
void EachPart(const Linear& op, const Tensors& parts, Body body) {
  std::int64_t first = 0;
  for (const auto& part : parts) {
    // Without rows a tensor does not tell its width: the only one has all of it.
    TIDEMARK_CHECK(op.rows > 0 ? part.type.elements % op.rows == 0 : part.type.elements == 0 && parts.size() == 1);
    const std::int64_t width = op.rows > 0 ? part.type.elements / op.rows : op.out;
    body(part, first, width);
    first += width;
  }
  TIDEMARK_CHECK(first == op.out);
}

inline void CheckWeight(const Linear& op, const TensorType& weight) {
  TIDEMARK_CHECK(weight.elements == op.out * op.in);
}

inline MatrixView WeightRows(const Linear& op, const ConstTensor& weight, std::int64_t first, std::int64_t rows,
                             bool transposed) {
  return {weight, first * op.in, rows, op.in, op.in, transposed};
}

}  // namespace tidemark::kernels
