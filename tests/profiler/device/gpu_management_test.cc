// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/gpu_management.h"

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <string>

namespace tidemark::gpu_management_test {
namespace {

constexpr int kNotSupported = 3, kNoPermission = 4, kNotFound = 6, kInsufficientSize = 7;  // nvmlReturn_t

/// Of one GPU, at 0000:65:00.0, with three processes; it does not tell how fast its memory may be.
ManagementCalls Calls() {
  ManagementCalls calls;
  calls.init = [] { return 0; };
  calls.find = [](const char* bus_id, void** gpu) {
    static int only = 0;
    *gpu = &only;
    return std::string(bus_id) == "0000:65:00.0" ? 0 : kNotFound;
  };
  calls.memory = [](void*, ManagementCalls::Memory* memory) {
    *memory = {1000, 300, 700};
    return 0;
  };
  calls.processes = [](void*, unsigned* count, void*) {
    *count = 3;
    return kInsufficientSize;
  };
  calls.driver_version = [](char* text, unsigned length) {
    std::strncpy(text, "580.65.06", length);
    return 0;
  };
  calls.clock = [](void*, ManagementCalls::Clock which, unsigned* megahertz) {
    *megahertz = which == ManagementCalls::Clock::sm ? 1755 : 2619;
    return 0;
  };
  calls.max_clock = [](void*, ManagementCalls::Clock which, unsigned* megahertz) {
    *megahertz = which == ManagementCalls::Clock::sm ? 1980 : 0;
    return which == ManagementCalls::Clock::sm ? 0 : kNotSupported;
  };
  return calls;
}

const std::string kThere = "0000:65:00.0";

TEST(GpuManagement, SaysWhatIsUsedAndByHowMany) {
  ManagementCalls calls = Calls();
  const auto gpu = GpuManagement::Over(calls, kThere);
  ASSERT_TRUE(gpu.has_value());
  EXPECT_EQ(gpu->used(), Bytes(700));
  EXPECT_EQ(gpu->processes(), 3);
  calls.processes = [](void*, unsigned* count, void*) {
    *count = 0;
    return 0;
  };
  EXPECT_EQ(GpuManagement::Over(calls, kThere)->processes(), 0);
}

TEST(GpuManagement, SaysDriverAndClocks) {
  const auto gpu = GpuManagement::Over(Calls(), kThere);
  ASSERT_TRUE(gpu.has_value());
  EXPECT_EQ(gpu->driver(), "580.65.06");
  Clocks clocks;
  clocks.memory_max_mhz = 2620;  // by another
  gpu->Tell(clocks);
  EXPECT_EQ(clocks, (Clocks{1755, 1980, 2619, 2620}));  // what it does not tell stays
}

TEST(GpuManagement, SaysNothingOfWhatItIsNotTold) {
  ManagementCalls calls = Calls();
  EXPECT_FALSE(GpuManagement::Over(calls, "0000:66:00.0").has_value());
  calls.memory = [](void*, ManagementCalls::Memory*) { return kNoPermission; };
  calls.processes = [](void*, unsigned*, void*) { return kNoPermission; };
  calls.driver_version = [](char*, unsigned) { return kNoPermission; };
  const auto gpu = GpuManagement::Over(calls, kThere);
  ASSERT_TRUE(gpu.has_value());
  EXPECT_EQ(gpu->used(), std::nullopt);
  EXPECT_EQ(gpu->processes(), std::nullopt);
  EXPECT_EQ(gpu->driver(), "");
  calls.init = [] { return kNotSupported; };
  EXPECT_FALSE(GpuManagement::Over(calls, kThere).has_value());
}

}  // namespace
}  // namespace tidemark::gpu_management_test
