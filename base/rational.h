// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <numeric>

#include "base/check.h"

namespace tidemark {

/// An exact scale factor in lowest terms; the denominator is positive. Products of 1/M, 1/N and their kin
/// must come out as exactly 1/(M N), which floating point cannot promise. The operators treat what does not fit into
/// 64 bits as a fault of ours; where wrong factors are followed for as long as they grow, see SaturatingProduct.
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

  /// What does not fit. Equal to itself only, and so is what is computed with it, but for its product with 0.
  static constexpr Rational TooLarge() {
    Rational rational;
    rational.denominator_ = 0;
    return rational;
  }
  constexpr bool too_large() const { return denominator_ == 0; }

  friend constexpr Rational SaturatingProduct(Rational a, Rational b) {
    if (a == Rational() || b == Rational()) {
      return a == Rational() ? b : a;
    }
    if (a.numerator_ == 0 || b.numerator_ == 0) {
      return Rational(0);
    }
    if (a.too_large() || b.too_large()) {
      return TooLarge();
    }
    const Rational left(a.numerator_, b.denominator_);
    const Rational right(b.numerator_, a.denominator_);
    std::int64_t numerator = 0;
    std::int64_t denominator = 0;
    const bool fits = !__builtin_mul_overflow(left.numerator_, right.numerator_, &numerator) &&
                      !__builtin_mul_overflow(left.denominator_, right.denominator_, &denominator);
    return fits && numerator > INT64_MIN ? Rational(numerator, denominator) : TooLarge();
  }
  friend constexpr Rational SaturatingSum(Rational a, Rational b) {
    if (a.numerator_ == 0 || b.numerator_ == 0) {
      return a.numerator_ == 0 ? b : a;
    }
    if (a.too_large() || b.too_large()) {
      return TooLarge();
    }
    const std::int64_t common = std::gcd(a.denominator_, b.denominator_);
    std::int64_t left = 0;
    std::int64_t right = 0;
    std::int64_t numerator = 0;
    std::int64_t denominator = 0;
    const bool fits = !__builtin_mul_overflow(a.numerator_, b.denominator_ / common, &left) &&
                      !__builtin_mul_overflow(b.numerator_, a.denominator_ / common, &right) &&
                      !__builtin_add_overflow(left, right, &numerator) &&
                      !__builtin_mul_overflow(a.denominator_, b.denominator_ / common, &denominator);
    return fits && numerator > INT64_MIN ? Rational(numerator, denominator) : TooLarge();
  }
  friend constexpr Rational operator*(Rational a, Rational b) {
    const Rational product = SaturatingProduct(a, b);
    TIDEMARK_CHECK(!product.too_large());
    return product;
  }
  friend constexpr Rational operator+(Rational a, Rational b) {
    const Rational sum = SaturatingSum(a, b);
    TIDEMARK_CHECK(!sum.too_large());
    return sum;
  }
  friend constexpr bool operator==(Rational, Rational) = default;

 private:
  std::int64_t numerator_ = 1;
  std::int64_t denominator_ = 1;
};

}  // namespace tidemark
