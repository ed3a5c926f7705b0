// SPDX-License-Identifier: Apache-2.0
#include "kernels/tensor.h"

#include "base/check.h"

namespace tidemark::kernels {
namespace {

/// Element `begin` of a tensor, after checking that all of the stretch is there.
template <class Byte, class Data>
Data* At(const TensorType& type, Data* data, std::int64_t begin, std::int64_t elements) {
  TIDEMARK_CHECK(begin >= 0 && elements >= 0 && elements <= type.elements - begin);
  return data == nullptr ? nullptr : static_cast<Byte*>(data) + (SizeOf(type.dtype) * begin).count();
}

}  // namespace

ConstTensor Slice(const ConstTensor& tensor, std::int64_t begin, std::int64_t elements) {
  return {{tensor.type.dtype, elements}, At<const char>(tensor.type, tensor.data, begin, elements)};
}

Tensor Slice(const Tensor& tensor, std::int64_t begin, std::int64_t elements) {
  return {{tensor.type.dtype, elements}, At<char>(tensor.type, tensor.data, begin, elements)};
}

DType StatisticsOf(DType dtype) { return dtype == DType::fp64 ? DType::fp64 : DType::fp32; }

}  // namespace tidemark::kernels
