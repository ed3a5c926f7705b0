// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/check.h"
#include "kernels/glu.h"

namespace tidemark::kernels {

/// Where a row of the operand begins: gate or up, by itself or as half of a packed tensor.
struct Half {
  std::int64_t stride = 0, first = 0;
  constexpr std::int64_t operator()(std::int64_t row) const { return row * stride + first; }
};

inline Half HalfOf(const Glu& op, const TensorType& type, bool second) {
  if (type.elements == 2 * op.rows * op.width) {
    return {2 * op.width, second ? op.width : 0};
  }
  TIDEMARK_CHECK(type.elements == op.rows * op.width);
  return {op.width, 0};
}
inline Half Gate(const Glu& op, const TensorType& type) { return HalfOf(op, type, false); }
inline Half Up(const Glu& op, const TensorType& type) { return HalfOf(op, type, true); }

}  // namespace tidemark::kernels
