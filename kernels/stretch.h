// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <type_traits>
#include <vector>

#include "base/check.h"
#include "kernels/tensor.h"

namespace tidemark::kernels {

// How kernels see tensors: as stretches in the dtype of the arithmetic, C, which is float or double. A tensor of that
// dtype is read and written where it lies; any other is widened into scratch and rounded on its way back. A kernel is
// thereby written once for all storage dtypes.

/// What pointwise kernels take at a time: small enough for the first cache.
inline constexpr std::int64_t kStretch = 1024;

/// `count` elements from `begin` on, widened.
void Widen(const ConstTensor& from, std::int64_t begin, std::int64_t count, float* to);
void Widen(const ConstTensor& from, std::int64_t begin, std::int64_t count, double* to);
/// Rounded to nearest even; fp64 on its way to two bytes goes by fp32.
void Narrow(const float* from, const Tensor& to, std::int64_t begin, std::int64_t count);
void Narrow(const double* from, const Tensor& to, std::int64_t begin, std::int64_t count);

template <class C>
inline constexpr DType kArithmetic = std::is_same_v<C, double> ? DType::fp64 : DType::fp32;

/// Elements of an integer tensor, or of one that is known to be of C.
template <class T>
const T* Elements(const ConstTensor& tensor) {
  constexpr DType kDtype = std::is_same_v<T, std::int64_t>   ? DType::int64
                           : std::is_same_v<T, std::uint8_t> ? DType::u8
                                                             : kArithmetic<T>;
  TIDEMARK_CHECK(tensor.type.dtype == kDtype);
  return static_cast<const T*>(tensor.data);
}
template <class T>
T* Elements(const Tensor& tensor) {
  return const_cast<T*>(Elements<T>(ConstTensor(tensor)));
}

/// Reads stretches of at most `longest` elements. A stretch is valid until the next one is asked for.
template <class C>
class Reader {
 public:
  Reader(const ConstTensor& tensor, std::int64_t longest)
      : tensor_(tensor), scratch_(IsThere() ? 0 : static_cast<std::size_t>(longest)) {}

  const C* At(std::int64_t begin, std::int64_t count) {
    TIDEMARK_CHECK(begin >= 0 && count <= tensor_.type.elements - begin);
    if (IsThere()) {
      return static_cast<const C*>(tensor_.data) + begin;
    }
    Widen(tensor_, begin, count, scratch_.data());
    return scratch_.data();
  }

 private:
  bool IsThere() const { return tensor_.type.dtype == kArithmetic<C>; }

  ConstTensor tensor_;
  std::vector<C> scratch_;
};

/// Writes stretches of at most `longest` elements: ask for one, fill it, and say Done.
template <class C>
class Writer {
 public:
  Writer(const Tensor& tensor, std::int64_t longest)
      : tensor_(tensor), scratch_(IsThere() ? 0 : static_cast<std::size_t>(longest)) {}

  /// Where to write. What stands there is undefined.
  C* At(std::int64_t begin, std::int64_t count) {
    TIDEMARK_CHECK(begin >= 0 && count <= tensor_.type.elements - begin);
    return IsThere() ? static_cast<C*>(tensor_.data) + begin : scratch_.data();
  }
  /// The same, with what the tensor holds.
  C* Present(std::int64_t begin, std::int64_t count) {
    C* stretch = At(begin, count);
    if (!IsThere()) {
      Widen(tensor_, begin, count, stretch);
    }
    return stretch;
  }
  void Done(std::int64_t begin, std::int64_t count) {
    if (!IsThere()) {
      Narrow(scratch_.data(), tensor_, begin, count);
    }
  }

 private:
  bool IsThere() const { return tensor_.type.dtype == kArithmetic<C>; }

  Tensor tensor_;
  std::vector<C> scratch_;
};

/// Calls `body` with a value of the arithmetic's type for operands of these types.
template <class Body>
void InArithmeticOf(std::initializer_list<TensorType> types, Body body) {
  if (std::any_of(types.begin(), types.end(), [](const TensorType& type) { return type.dtype == DType::fp64; })) {
    body(double{});
  } else {
    body(float{});
  }
}

/// Calls `body(i)` for i in [0, count); calls do not depend on each other, so that they may be one vector's. An element
/// may be written where it was read.
template <class Body>
inline void Each(std::int64_t count, Body body) {
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC ivdep
#endif
  for (std::int64_t i = 0; i < count; ++i) {
    body(i);
  }
}

/// Calls `body(begin, count)` for one stretch after the other.
template <class Body>
inline void EachStretch(std::int64_t elements, Body body) {
  for (std::int64_t begin = 0; begin < elements; begin += kStretch) {
    body(begin, std::min(kStretch, elements - begin));
  }
}

/// Joins lanes in pairs, until one is left.
template <std::int64_t kLanes, class C, class Join>
inline C FoldLanes(C* lanes, Join join) {
  if constexpr (kLanes > 1) {
    for (std::int64_t lane = 0; lane < kLanes / 2; ++lane) {
      lanes[lane] = join(lanes[lane], lanes[lane + kLanes / 2]);
    }
    return FoldLanes<kLanes / 2>(lanes, join);
  }
  return lanes[0];
}

/// Sum of `term(i)`, i in [0, count), in a fixed order: kLanes partial sums, then these in pairs. Its error is about
/// (count / kLanes + log2 kLanes) roundings.
template <class C, class Term>
inline C SumOf(std::int64_t count, Term term) {
  constexpr std::int64_t kLanes = 128 / static_cast<std::int64_t>(sizeof(C));
  C lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] += term(i + lane);
    }
  }
  for (; i < count; ++i) {
    lanes[i % kLanes] += term(i);
  }
  return FoldLanes<kLanes>(lanes, [](C a, C b) { return a + b; });
}

/// The largest of `values`; NaN where there is one, -infinity where there are none.
template <class C>
inline C MaxOf(std::int64_t count, const C* values) {
  constexpr std::int64_t kLanes = 128 / static_cast<std::int64_t>(sizeof(C));
  constexpr auto kLarger = [](C a, C b) { return a > b || a != a ? a : b; };  // NOLINT(misc-redundant-expression): NaN
  C lanes[kLanes];
  std::fill_n(lanes, kLanes, -std::numeric_limits<C>::infinity());
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      lanes[lane] = kLarger(lanes[lane], values[i + lane]);
    }
  }
  for (; i < count; ++i) {
    lanes[i % kLanes] = kLarger(lanes[i % kLanes], values[i]);
  }
  return FoldLanes<kLanes>(lanes, kLarger);
}

}  // namespace tidemark::kernels
