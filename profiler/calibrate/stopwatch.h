// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>

namespace tidemark {

/// A rate in four digits: more would say nothing.
inline double FourDigits(double per_second) {
  const double unit = std::pow(10, std::floor(std::log10(per_second)) - 3);
  return std::round(per_second / unit) * unit;
}

/// Seconds of one call of `body`: the least mean of up to kBatches batches, each of so many calls that it takes a
/// millisecond at least; of fewer where they take long.
template <class Body>
double SecondsOf(Body body) {
  using Clock = std::chrono::steady_clock;
  constexpr int kBatches = 20;
  constexpr double kBatchSeconds = 1e-3, kEnoughSeconds = 0.05, kShortestSeconds = 1e-9;
  const auto of_calls = [&](std::int64_t calls) {
    const Clock::time_point start = Clock::now();
    for (std::int64_t i = 0; i < calls; ++i) {
      body();
    }
    return std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(calls);
  };
  of_calls(1);  // touches memory for the first time
  double best = of_calls(1);
  const Clock::time_point begin = Clock::now();
  for (int i = 0; i < kBatches && std::chrono::duration<double>(Clock::now() - begin).count() < kEnoughSeconds; ++i) {
    best = std::min(best, of_calls(std::max<std::int64_t>(
                              1, static_cast<std::int64_t>(kBatchSeconds / std::max(best, kShortestSeconds)))));
  }
  return best;
}

}  // namespace tidemark
