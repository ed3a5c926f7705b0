// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "profiler/device/probe.h"

namespace tidemark::probe_test {
namespace {

TEST(ProbeDevicesOnGpu, DescribesEveryGpu) {
  const DeviceProbe probe = ProbeDevices();
  ASSERT_THAT(probe.devices, ::testing::Not(::testing::IsEmpty())) << probe.reason;
  EXPECT_GE(probe.driver_version,
            probe.runtime_version / 1000 * 1000);  // CUDA's promise of minor-version compatibility
  for (const ProbedDevice& device : probe.devices) {
    EXPECT_THAT(device.name, ::testing::Not(::testing::IsEmpty()));
    EXPECT_GT(device.memory, Bytes(1 << 30));  // no GPU that CUDA 12 or later still serves has less
    EXPECT_GE(device.compute_major, 5);        // CUDA 12 dropped everything before Maxwell
  }
}

}  // namespace
}  // namespace tidemark::probe_test
