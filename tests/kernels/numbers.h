// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <random>
#include <vector>

#include "base/dtype.h"
#include "kernels/pointwise.h"
#include "kernels/tensor.h"

namespace tidemark::kernels {

/// Half the distance of 1 to the next number: what one rounding loses at most, relatively.
inline double UnitRoundoff(DType dtype) {
  return dtype == DType::fp64 ? 0x1p-53 : dtype == DType::fp32 ? 0x1p-24 : 0x1p-8;  // bf16 has 8 bits
}

/// A tensor that owns its memory, which is one NaN after the other until it is written: 0xFF bytes are NaN in every
/// floating dtype.
class Numbers {
 public:
  Numbers() = default;
  explicit Numbers(TensorType type)
      : type_(type), bytes_(static_cast<std::size_t>((SizeOf(type.dtype) * type.elements).count()), 0xFF) {}
  Numbers(DType dtype, const std::vector<double>& values)
      : Numbers(TensorType{dtype, static_cast<std::int64_t>(values.size())}) {
    const ConstTensor from{{DType::fp64, type_.elements}, values.data()};
    Copy(from, *this);
  }
  /// Uniform in [-1, 1], then rounded to the dtype.
  static Numbers Random(TensorType type, unsigned seed) {
    std::mt19937_64 engine(seed);
    std::uniform_real_distribution<double> uniform(-1, 1);
    std::vector<double> values;
    for (std::int64_t i = 0; i < type.elements; ++i) {
      values.push_back(uniform(engine));
    }
    return {type.dtype, values};
  }
  static Numbers Integers(const std::vector<std::int64_t>& values) {
    Numbers numbers(TensorType{DType::int64, static_cast<std::int64_t>(values.size())});
    std::copy_n(reinterpret_cast<const unsigned char*>(values.data()), numbers.bytes_.size(), numbers.bytes_.begin());
    return numbers;
  }
  static Numbers Bytes(const std::vector<unsigned char>& values) {
    Numbers numbers(TensorType{DType::u8, static_cast<std::int64_t>(values.size())});
    numbers.bytes_ = values;
    return numbers;
  }

  const TensorType& type() const { return type_; }
  operator Tensor() { return {type_, bytes_.data()}; }             // NOLINT(google-explicit-constructor)
  operator ConstTensor() const { return {type_, bytes_.data()}; }  // NOLINT(google-explicit-constructor)
  const std::vector<unsigned char>& bytes() const { return bytes_; }

  std::vector<double> values() const {
    std::vector<double> values(static_cast<std::size_t>(type_.elements));
    Copy(*this, Tensor{{DType::fp64, type_.elements}, values.data()});
    return values;
  }
  std::vector<std::int64_t> integers() const {
    std::vector<std::int64_t> values(static_cast<std::size_t>(type_.elements));
    std::copy_n(bytes_.begin(), bytes_.size(), reinterpret_cast<unsigned char*>(values.data()));
    return values;
  }
  double operator[](std::int64_t i) const {
    double value = 0;
    Copy(Slice(ConstTensor(*this), i, 1), Tensor{{DType::fp64, 1}, &value});
    return value;
  }
  void Set(std::int64_t i, double value) { Copy(ConstTensor{{DType::fp64, 1}, &value}, Slice(Tensor(*this), i, 1)); }
  Numbers As(DType dtype) const { return {dtype, values()}; }

 private:
  TensorType type_;
  std::vector<unsigned char> bytes_;
};

inline double Dot(const Numbers& a, const Numbers& b) {
  double sum = 0;
  for (std::int64_t i = 0; i < a.type().elements; ++i) {
    sum += a[i] * b[i];
  }
  return sum;
}

/// Expects `gradient` to be that of `loss()` with respect to x, by central differences in fp64. With a step h these are
/// wrong by h^2 / 6 times the third derivative and by a few 2^-53 |loss| / h: for h = 1e-5 and losses, sums of at most
/// a few hundred terms of order 1 whose third derivatives are of order 10, 2e-10 and 2e-9. Taken: 1e-7.
inline void ExpectGradient(const std::function<double()>& loss, Numbers& x, const Numbers& gradient) {
  constexpr double kStep = 1e-5, kTolerance = 1e-7;
  ASSERT_EQ(x.type(), gradient.type());
  const std::int64_t stride = std::max<std::int64_t>(1, x.type().elements / 97);  // some of many
  for (std::int64_t i = 0; i < x.type().elements; i += stride) {
    const double at = x[i];
    x.Set(i, at + kStep);
    const double above = loss();
    x.Set(i, at - kStep);
    const double below = loss();
    x.Set(i, at);
    const double expected = (above - below) / (2 * kStep);
    ASSERT_NEAR(gradient[i], expected, kTolerance * (1 + std::abs(expected))) << "element " << i;
  }
}

/// Expects |result - expected| <= bound(i), element by element.
inline void ExpectNear(const Numbers& result, const std::vector<double>& expected,
                       const std::function<double(std::size_t)>& bound) {
  const std::vector<double> values = result.values();
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_LE(std::abs(values[i] - expected[i]), bound(i))
        << "element " << i << ": " << values[i] << " for " << expected[i];
  }
}
inline void ExpectNear(const Numbers& result, const std::vector<double>& expected, double bound) {
  ExpectNear(result, expected, [bound](std::size_t) { return bound; });
}

}  // namespace tidemark::kernels
