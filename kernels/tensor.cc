// SPDX-License-Identifier: Apache-2.0
#include "kernels/tensor.h"

#include "base/check.h"

namespace tidemark::kernels {
namespace {

/// Bytes from the beginning to element `begin`, after checking that all of the stretch is there.
std::int64_t OffsetOf(const TensorType& type, std::int64_t begin, std::int64_t elements) {
  TIDEMARK_CHECK(begin >= 0 && elements >= 0 && elements <= type.elements - begin);
  return (SizeOf(type.dtype) * begin).count();
}

}  // namespace

ConstTensor Slice(const ConstTensor& tensor, std::int64_t begin, std::int64_t elements) {
  const std::int64_t offset = OffsetOf(tensor.type, begin, elements);
  return {{tensor.type.dtype, elements}, static_cast<const char*>(tensor.data) + offset};
}

Tensor Slice(const Tensor& tensor, std::int64_t begin, std::int64_t elements) {
  const std::int64_t offset = OffsetOf(tensor.type, begin, elements);
  return {{tensor.type.dtype, elements}, static_cast<char*>(tensor.data) + offset};
}

DType StatisticsOf(DType dtype) { return dtype == DType::fp64 ? DType::fp64 : DType::fp32; }

}  // namespace tidemark::kernels
