// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "profiler/execute/executor.h"

namespace tidemark {

/// What is not finite is infinitely far.
inline double Apart(double a, double b) {
  const double difference = std::abs(a - b);
  return std::isfinite(difference) ? difference : std::numeric_limits<double>::infinity();
}

/// The largest difference between `found` and a combination of other gradients, over the largest number expected.
template <class Expected>
double FarthestFrom(const ParameterParts& found, Expected expected) {
  double difference = 0, largest = 0;
  for (const auto& [key, parts] : found) {
    for (const auto& [begin, values] : parts) {
      for (std::size_t i = 0; i < values.size(); ++i) {
        const double number = expected(key, begin, i);
        difference = std::max(difference, Apart(values[i], number));
        largest = std::max(largest, std::abs(number));
      }
    }
  }
  EXPECT_GT(largest, 0);
  return difference / largest;
}

}  // namespace tidemark
