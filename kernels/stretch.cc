// SPDX-License-Identifier: Apache-2.0
#include "kernels/stretch.h"

#include <Eigen/Core>

#include "kernels/bf16.h"

namespace tidemark::kernels {
namespace {

template <class C>
void WidenTo(const ConstTensor& from, std::int64_t begin, std::int64_t count, C* to) {
  switch (from.type.dtype) {
    case DType::fp64:
      Each(count,
           [to, data = static_cast<const double*>(from.data) + begin](auto i) { to[i] = static_cast<C>(data[i]); });
      return;
    case DType::fp32:
      Each(count,
           [to, data = static_cast<const float*>(from.data) + begin](auto i) { to[i] = static_cast<C>(data[i]); });
      return;
    case DType::bf16:
      Each(count,
           [to, data = static_cast<const std::uint16_t*>(from.data) + begin](auto i) { to[i] = FromBf16(data[i]); });
      return;
    case DType::fp16:
      Each(count, [to, data = static_cast<const Eigen::half*>(from.data) + begin](auto i) {
        to[i] = static_cast<C>(static_cast<float>(data[i]));
      });
      return;
    case DType::int64:
    case DType::int32:
    case DType::u8:
      break;
  }
  TIDEMARK_CHECK(false && "a floating dtype to compute with");
}

template <class C>
void NarrowFrom(const C* from, const Tensor& to, std::int64_t begin, std::int64_t count) {
  switch (to.type.dtype) {
    case DType::fp64:
      Each(count, [from, data = static_cast<double*>(to.data) + begin](auto i) { data[i] = from[i]; });
      return;
    case DType::fp32:
      Each(count,
           [from, data = static_cast<float*>(to.data) + begin](auto i) { data[i] = static_cast<float>(from[i]); });
      return;
    case DType::bf16:
      Each(count, [from, data = static_cast<std::uint16_t*>(to.data) + begin](auto i) {
        data[i] = ToBf16(static_cast<float>(from[i]));
      });
      return;
    case DType::fp16:
      Each(count, [from, data = static_cast<Eigen::half*>(to.data) + begin](auto i) {
        data[i] = Eigen::half(static_cast<float>(from[i]));
      });
      return;
    case DType::int64:
    case DType::int32:
    case DType::u8:
      break;
  }
  TIDEMARK_CHECK(false && "a floating dtype to store in");
}

}  // namespace

void Widen(const ConstTensor& from, std::int64_t begin, std::int64_t count, float* to) {
  WidenTo(from, begin, count, to);
}
void Widen(const ConstTensor& from, std::int64_t begin, std::int64_t count, double* to) {
  WidenTo(from, begin, count, to);
}
void Narrow(const float* from, const Tensor& to, std::int64_t begin, std::int64_t count) {
  NarrowFrom(from, to, begin, count);
}
void Narrow(const double* from, const Tensor& to, std::int64_t begin, std::int64_t count) {
  NarrowFrom(from, to, begin, count);
}

}  // namespace tidemark::kernels
