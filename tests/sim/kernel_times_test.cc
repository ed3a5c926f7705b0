// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/machine/presets.h"
#include "sim/cost/cost.h"

// Products of an H200 against what its calibration says, but for those that the calibration measured itself.

namespace tidemark::kernel_times_test {
namespace {

std::string Recorded(const std::string& name) { return std::string(TIDEMARK_TESTS) + "/gpu/recorded/" + name; }

/// By what a layer's kernel is called there, and its rows, in and out.
Gemm ProductOf(const std::string& kernel, std::int64_t rows, std::int64_t in, std::int64_t out) {
  if (kernel == "LinearForward") {
    return {.m = rows, .n = out, .k = in};
  }
  return kernel == "LinearInputGradient" ? Gemm{.m = rows, .n = in, .k = out} : Gemm{.m = out, .n = in, .k = rows};
}

/// Points of the calibration's curves (GpuSizes in profiler/calibrate/sizes.cc).
bool IsOfTheCalibration(std::int64_t rows, std::int64_t in, std::int64_t out) {
  return (rows == 8192 && out == 8192) || (in == out && (rows == 8192 || rows == 2048));
}

double Median(std::vector<double> numbers) {
  std::nth_element(numbers.begin(), numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2), numbers.end());
  return numbers[numbers.size() / 2];
}

TEST(KernelTimes, ProductsOfNetworksTakeWhatCurvesOfOthersSay) {
  const Result<Machine> machine = FindMachine(Recorded("h200.machine.yaml"), {});
  ASSERT_TRUE(machine.ok()) << machine.error().Text();
  const auto launch = static_cast<double>(machine->kernel_launch.count()) * 1e-3;
  std::ifstream file(Recorded("kernel-times-h200.json"));
  const auto recorded = nlohmann::json::parse(file);
  std::map<std::string, std::vector<double>> errors;
  for (const auto& time : recorded.at("times")) {
    const std::string kernel = time.at("kernel");
    if (kernel != "LinearForward" && kernel != "LinearInputGradient" && kernel != "LinearWeightGradient") {
      continue;
    }
    const auto& shape = time.at("shape");
    if (IsOfTheCalibration(shape[0], shape[1], shape[2])) {
      continue;
    }
    const double predicted = KernelSeconds(ProductOf(kernel, shape[0], shape[1], shape[2]), *machine) * 1e6 - launch;
    const double measured = time.at("warm_us").get<double>() - recorded.at("launch_us").get<double>();
    errors[kernel].push_back(predicted / measured - 1);
  }
  ASSERT_EQ(errors.size(), 3U);
  for (const auto& [kernel, of] : errors) {
    ASSERT_GT(of.size(), 40U) << kernel;
    std::vector<double> absolute(of.size());
    std::transform(of.begin(), of.end(), absolute.begin(), [](double error) { return std::abs(error); });
    EXPECT_LT(Median(absolute), 0.06) << kernel;
    EXPECT_LT(std::abs(Median(of)), 0.03) << kernel << ": too long or too short on the whole";
    EXPECT_LT(*std::max_element(absolute.begin(), absolute.end()), 0.6) << kernel;
  }
}

}  // namespace
}  // namespace tidemark::kernel_times_test
