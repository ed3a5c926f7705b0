// SPDX-License-Identifier: Apache-2.0
#include "profiler/calibrate/calibrate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>

#include "profiler/calibrate/stopwatch.h"

namespace tidemark {
namespace {

// The last step takes 100 ns, its two kernels 30 and 50 of them: 20 remain for two. The first step does not count.
TEST(Calibration, WhatSurroundsAKernelIsTheStepLessItsKernels) {
  Trace trace;
  trace.steps = {{"first", Nanos(0), Nanos(1000), 0}, {"steady", Nanos(1000), Nanos(1100), 0}};
  trace.slices = {{0, {}, Nanos(10), Nanos(20)}, {0, {}, Nanos(1000), Nanos(1030)}, {0, {}, Nanos(1040), Nanos(1090)}};
  EXPECT_EQ(TimeAroundKernels(trace), Nanos(10));
}

TEST(Calibration, RatesHaveFourDigits) {
  EXPECT_EQ(FourDigits(90'767'107'152.5), 90'770'000'000.0);
  EXPECT_EQ(FourDigits(1'000'000), 1'000'000.0);
}

TEST(Calibration, AStopwatchTakesTheFastestOfManyCalls) {
  std::atomic<std::int64_t> calls = 0;  // which no compiler may count all at once
  const auto start = std::chrono::steady_clock::now();
  const double seconds = SecondsOf([&] { ++calls; });
  const double all = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_GT(calls, 20);
  EXPECT_GT(seconds, 0);
  EXPECT_LE(seconds * static_cast<double>(calls), all);
}

}  // namespace
}  // namespace tidemark
