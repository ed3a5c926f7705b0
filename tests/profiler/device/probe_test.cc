// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

namespace tidemark::probe_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

// The answers are those of CUDA 13.0's runtime, seen on machines in the state that each test names; the numbers are
// cudaErrorStubLibrary = 34, cudaErrorInsufficientDriver = 35, cudaErrorNoDevice = 100 of driver_types.h.

TEST(WhyNoDevice, MachineWithoutDriverIsToldThereIsNone) {
  EXPECT_THAT(WhyNoDevice({.driver_version = 0, .count_error = 35, .count = 0}), HasSubstr("no driver"));
}

TEST(WhyNoDevice, StubLibraryOnThePathIsNamed) {
  EXPECT_THAT(WhyNoDevice({.driver_version = 0, .count_error = 34, .count = 0}), HasSubstr("stub"));
}

TEST(WhyNoDevice, OldDriverIsNotCalledAMissingOne) {
  const std::string reason = WhyNoDevice({.driver_version = 12080, .count_error = 35, .count = 0});
  EXPECT_THAT(reason, HasSubstr("older"));
  EXPECT_THAT(reason, Not(HasSubstr("no driver")));
}

TEST(WhyNoDevice, DriverWithoutGpuIsToldThereIsNoDevice) {
  EXPECT_THAT(WhyNoDevice({.driver_version = 13000, .count_error = 100, .count = 0}), HasSubstr("no device"));
  EXPECT_THAT(WhyNoDevice({.driver_version = 13000, .count_error = 0, .count = 0}), HasSubstr("no device"));
}

TEST(WhyNoDevice, UnforeseenErrorIsGivenByItsNumber) {
  EXPECT_THAT(WhyNoDevice({.driver_version = 13000, .count_error = 999, .count = 0}), HasSubstr("999"));
}

TEST(WhyNoDevice, UsableGpuNeedsNoExcuse) {
  EXPECT_THAT(WhyNoDevice({.driver_version = 13000, .count_error = 0, .count = 1}), IsEmpty());
}

TEST(ProbeDevices, GivesEitherDevicesOrTheReasonWhyThereAreNone) {
  const DeviceProbe probe = ProbeDevices();
  EXPECT_EQ(probe.devices.empty(), !probe.reason.empty()) << probe.reason;
}

// NVIDIA's kernel module shows itself in /proc/driver/nvidia, so whether there is a driver is known without CUDA.
TEST(ProbeDevices, SaysNoDriverWhereTheKernelHasNone) {
  const DeviceProbe probe = ProbeDevices();
  if (probe.runtime_version == 0) {
    EXPECT_THAT(probe.reason, HasSubstr("built without a CUDA toolkit"));
    return;
  }
  if (std::filesystem::exists("/proc/driver/nvidia")) {
    GTEST_SKIP() << "needs a machine without a driver";
  }
  EXPECT_EQ(probe.driver_version, 0);
  EXPECT_THAT(probe.reason, HasSubstr("no driver"));
}

}  // namespace
}  // namespace tidemark::probe_test
