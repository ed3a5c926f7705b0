// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>

namespace tidemark::kernels {

// e^x without a branch or a call, so that loops over it become vectors and an element's value never depends on where in
// a vector it lies. With n = round(x / ln 2) and r = x - n ln 2, |r| <= 0.347, e^x = 2^n e^r, and e^r is its Taylor
// series, whose rest is below half a unit in the last place: r^8 / 8! < 6e-9 in fp32, r^14 / 14! < 5e-18 in fp64. The
// integer n is read off the bits of x / ln 2 + 1.5 2^(mantissa bits), which has no fraction left; 2^n is the product of
// two powers, either of which is a normal number. ln 2 is split so that n times its first part is exact (Cody and
// Waite, 1980).

namespace detail {

template <class C>
struct ExponentialConstants;

template <>
struct ExponentialConstants<float> {
  using Bits = std::uint32_t;
  static constexpr int kMantissa = 23, kBias = 127, kTerms = 7;
  static constexpr float kLowest = -104.F, kHighest = 89.F;  // e^x is 0 below, infinite above
  static constexpr float kLn2High = 0.693359375F, kLn2Low = -2.12194440e-4F, kShift = 12582912.F;
};

template <>
struct ExponentialConstants<double> {
  using Bits = std::uint64_t;
  static constexpr int kMantissa = 52, kBias = 1023, kTerms = 13;
  static constexpr double kLowest = -746, kHighest = 710;
  static constexpr double kLn2High = 6.93145751953125e-1, kLn2Low = 1.42860682030941723212e-6,
                          kShift = 6755399441055744;
};

/// 1 / k!
inline constexpr double kInverseFactorials[] = {
    1,         1,          1. / 2,      1. / 6,       1. / 24,       1. / 120,       1. / 720,
    1. / 5040, 1. / 40320, 1. / 362880, 1. / 3628800, 1. / 39916800, 1. / 479001600, 1. / 6227020800};

}  // namespace detail

/// Within 2 units in the last place; exact at infinities, NaN for NaN.
template <class C>
inline C Exp(C x) {
  using K = detail::ExponentialConstants<C>;
  using Bits = typename K::Bits;
  constexpr C kInverseLn2 = static_cast<C>(1.4426950408889634);
  x = x < K::kLowest ? K::kLowest : x;
  x = x > K::kHighest ? K::kHighest : x;
  const C shifted = x * kInverseLn2 + K::kShift;
  const C n = shifted - K::kShift;
  const C r = (x - n * K::kLn2High) - n * K::kLn2Low;
  C series = static_cast<C>(detail::kInverseFactorials[K::kTerms]);
  for (int k = K::kTerms - 1; k >= 0; --k) {
    series = series * r + static_cast<C>(detail::kInverseFactorials[k]);
  }
  // Halves of n, rounded down and up, with an offset that keeps them positive as unsigned numbers.
  constexpr Bits kOffset = 4096;
  const Bits whole = std::bit_cast<Bits>(shifted) - std::bit_cast<Bits>(K::kShift) + kOffset;
  const Bits low = whole / 2, high = whole - low;
  const C first = std::bit_cast<C>((low - kOffset / 2 + K::kBias) << K::kMantissa);
  const C second = std::bit_cast<C>((high - kOffset / 2 + K::kBias) << K::kMantissa);
  return series * first * second;
}

template <class C>
inline C Sigmoid(C x) {
  return C(1) / (C(1) + Exp(-x));
}

}  // namespace tidemark::kernels
