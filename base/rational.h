// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <numeric>

#include "base/check.h"

namespace tidemark {

/// An exact scale factor in lowest terms; the denominator is positive. Products of 1/M, 1/N and their kin
/// must come out as exactly 1/(M N), which floating point cannot promise.
class Rational {
 public:
  constexpr Rational() = default;
  constexpr explicit Rational(std::int64_t numerator, std::int64_t denominator = 1)
      : numerator_(numerator), denominator_(denominator) {
    TIDEMARK_CHECK(denominator > 0 && numerator > INT64_MIN);
    const std::int64_t divisor = std::gcd(numerator, denominator);
    numerator_ /= divisor;
    denominator_ /= divisor;
  }

  constexpr std::int64_t numerator() const { return numerator_; }
  constexpr std::int64_t denominator() const { return denominator_; }

  friend constexpr Rational operator*(Rational a, Rational b) {
    if (a == Rational() || b == Rational()) {
      return a == Rational() ? b : a;
    }
    const Rational left(a.numerator_, b.denominator_);
    const Rational right(b.numerator_, a.denominator_);
    std::int64_t numerator = 0;
    std::int64_t denominator = 0;
    TIDEMARK_CHECK(!__builtin_mul_overflow(left.numerator_, right.numerator_, &numerator));
    TIDEMARK_CHECK(!__builtin_mul_overflow(left.denominator_, right.denominator_, &denominator));
    return Rational(numerator, denominator);
  }
  friend constexpr Rational operator+(Rational a, Rational b) {
    if (a.numerator_ == 0 || b.numerator_ == 0) {
      return a.numerator_ == 0 ? b : a;
    }
    const std::int64_t common = std::gcd(a.denominator_, b.denominator_);
    std::int64_t left = 0;
    std::int64_t right = 0;
    std::int64_t numerator = 0;
    std::int64_t denominator = 0;
    TIDEMARK_CHECK(!__builtin_mul_overflow(a.numerator_, b.denominator_ / common, &left));
    TIDEMARK_CHECK(!__builtin_mul_overflow(b.numerator_, a.denominator_ / common, &right));
    TIDEMARK_CHECK(!__builtin_add_overflow(left, right, &numerator));
    TIDEMARK_CHECK(!__builtin_mul_overflow(a.denominator_, b.denominator_ / common, &denominator));
    return Rational(numerator, denominator);
  }
  friend constexpr bool operator==(Rational, Rational) = default;

 private:
  std::int64_t numerator_ = 1;
  std::int64_t denominator_ = 1;
};

}  // namespace tidemark
