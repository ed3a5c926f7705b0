// SPDX-License-Identifier: Apache-2.0
#include "kernels/heads.h"

#include "base/check.h"

namespace tidemark::kernels {
namespace {

HeadRows PackedRows(const HeadShape& shape, std::int64_t heads_before, std::int64_t size) {
  return {(shape.heads + shape.kv_heads) * shape.head_size + shape.kv_heads * shape.value_size(),
          heads_before * shape.head_size, size};
}

HeadRows RowsOf(const HeadShape& shape, const TensorType& type, std::int64_t heads, std::int64_t heads_before) {
  if (type.elements == shape.packed_elements()) {
    return PackedRows(shape, heads_before, shape.head_size);
  }
  TIDEMARK_CHECK(type.elements == shape.tokens() * heads * shape.head_size);
  return {heads * shape.head_size, 0, shape.head_size};
}

}  // namespace

HeadRows QueryRows(const HeadShape& shape, const TensorType& type) { return RowsOf(shape, type, shape.heads, 0); }
HeadRows KeyRows(const HeadShape& shape, const TensorType& type) {
  return RowsOf(shape, type, shape.kv_heads, shape.heads);
}
HeadRows ValueRows(const HeadShape& shape, const TensorType& type) {
  const std::int64_t size = shape.value_size(), heads = shape.tokens() * shape.kv_heads;
  if (type.elements == shape.packed_elements()) {
    return PackedRows(shape, shape.heads + shape.kv_heads, size);
  }
  const std::int64_t before = type.elements == heads * size ? 0 : shape.before_value;
  TIDEMARK_CHECK(type.elements == heads * (before + size));
  return {shape.kv_heads * (before + size), before, before + size};
}

}  // namespace tidemark::kernels
