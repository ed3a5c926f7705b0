// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>

#include "base/check.h"

namespace tidemark {

/// A whole number of one unit. Quantities of different units do not mix, construction is explicit, and
/// arithmetic is checked: overflow ends the process instead of giving a plausible number. Input that could
/// overflow is refused before any arithmetic starts (models/job/validate.h bounds every dimension).
template <class Unit>
class Quantity {
 public:
  constexpr Quantity() = default;
  constexpr explicit Quantity(std::int64_t count) : count_(count) {}

  /// The bare number, for the borders (files, devices), where the unit stands in the name.
  constexpr std::int64_t count() const { return count_; }

  constexpr Quantity& operator+=(Quantity other) {
    TIDEMARK_CHECK(!__builtin_add_overflow(count_, other.count_, &count_));
    return *this;
  }
  constexpr Quantity& operator-=(Quantity other) {
    TIDEMARK_CHECK(!__builtin_sub_overflow(count_, other.count_, &count_));
    return *this;
  }
  constexpr Quantity& operator*=(std::int64_t factor) {
    TIDEMARK_CHECK(!__builtin_mul_overflow(count_, factor, &count_));
    return *this;
  }
  /// Rounds towards zero; the divisor is positive.
  constexpr Quantity& operator/=(std::int64_t divisor) {
    TIDEMARK_CHECK(divisor > 0);
    count_ /= divisor;
    return *this;
  }

  friend constexpr Quantity operator+(Quantity a, Quantity b) { return a += b; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return a -= b; }
  friend constexpr Quantity operator*(Quantity a, std::int64_t factor) { return a *= factor; }
  friend constexpr Quantity operator*(std::int64_t factor, Quantity a) { return a *= factor; }
  friend constexpr Quantity operator/(Quantity a, std::int64_t divisor) { return a /= divisor; }
  friend constexpr auto operator<=>(Quantity, Quantity) = default;

 private:
  std::int64_t count_ = 0;
};

using Bytes = Quantity<struct BytesUnit>;  ///< GiB = 2^30, GB = 10^9; never "MB" for 2^20.
using Nanos = Quantity<struct NanosUnit>;
using Flops = Quantity<struct FlopsUnit>;  ///< Floating-point operations; a multiply-add counts two.

/// So many units per second. A rate is modelled or measured, hence a real number.
template <class Unit>
class Rate {
 public:
  constexpr Rate() = default;
  constexpr explicit Rate(double per_second) : per_second_(per_second) {}
  constexpr double per_second() const { return per_second_; }
  friend constexpr Rate operator*(Rate rate, double factor) { return Rate(rate.per_second_ * factor); }
  friend constexpr auto operator<=>(Rate, Rate) = default;

 private:
  double per_second_ = 0;
};

using BytesPerSec = Rate<struct BytesUnit>;
using FlopsPerSec = Rate<struct FlopsUnit>;

/// Seconds that `amount` takes at `rate`. A rate of zero is a bug: machine files are validated.
template <class Unit>
constexpr double SecondsAt(Quantity<Unit> amount, Rate<Unit> rate) {
  TIDEMARK_CHECK(rate.per_second() > 0);
  return static_cast<double>(amount.count()) / rate.per_second();
}

/// Rounds once, to the nearest nanosecond. Every duration of a program passes here exactly once.
constexpr Nanos RoundToNanos(double seconds) {
  TIDEMARK_CHECK(seconds >= 0 && seconds < 9e9);
  return Nanos(static_cast<std::int64_t>(seconds * 1e9 + 0.5));
}

constexpr std::int64_t CeilDiv(std::int64_t value, std::int64_t divisor) {
  TIDEMARK_CHECK(value >= 0 && divisor > 0);
  return value / divisor + (value % divisor == 0 ? 0 : 1);
}

/// Smallest multiple of `step` that is not below `value`; `value` is not negative, `step` positive.
constexpr std::int64_t RoundUp(std::int64_t value, std::int64_t step) {
  std::int64_t rounded = 0;
  TIDEMARK_CHECK(!__builtin_mul_overflow(CeilDiv(value, step), step, &rounded));
  return rounded;
}

}  // namespace tidemark
