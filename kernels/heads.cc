// SPDX-License-Identifier: Apache-2.0
#include "kernels/heads.h"

#include "base/check.h"

namespace tidemark::kernels {
namespace {

HeadRows RowsOf(const HeadShape& shape, const TensorType& type, std::int64_t heads, std::int64_t first_of_packed) {
  if (type.elements == shape.packed_elements()) {
    return {(shape.heads + 2 * shape.kv_heads) * shape.head_size, first_of_packed * shape.head_size};
  }
  TIDEMARK_CHECK(type.elements == shape.tokens() * heads * shape.head_size);
  return {heads * shape.head_size, 0};
}

}  // namespace

HeadRows QueryRows(const HeadShape& shape, const TensorType& type) { return RowsOf(shape, type, shape.heads, 0); }
HeadRows KeyRows(const HeadShape& shape, const TensorType& type) {
  return RowsOf(shape, type, shape.kv_heads, shape.heads);
}
HeadRows ValueRows(const HeadShape& shape, const TensorType& type) {
  return RowsOf(shape, type, shape.kv_heads, shape.heads + shape.kv_heads);
}

}  // namespace tidemark::kernels
