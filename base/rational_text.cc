// SPDX-License-Identifier: Apache-2.0
#include "base/rational_text.h"

#include <fmt/format.h>

#include <limits>

namespace tidemark {

std::string Text(Rational factor) {
  if (factor.too_large()) {
    return "too large to tell";
  }
  return factor.denominator() == 1 ? fmt::format("{}", factor.numerator())
                                   : fmt::format("{}/{}", factor.numerator(), factor.denominator());
}

double ToDouble(Rational factor) {
  return factor.too_large() ? std::numeric_limits<double>::infinity()
                            : static_cast<double>(factor.numerator()) / static_cast<double>(factor.denominator());
}

}  // namespace tidemark
