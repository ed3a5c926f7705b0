// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/nvml.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string_view>

namespace tidemark {
namespace {

constexpr int kSuccess = 0, kNotSupported = 3;  // nvmlReturn_t
int g_device = 0;

/// A driver with one GPU, on bus 0000:17:00.0.
NvmlCalls FakeCalls() {
  NvmlCalls calls;
  calls.init = [] { return kSuccess; };
  calls.shutdown = [] { return kSuccess; };
  calls.driver_version = [](char* text, unsigned length) {
    std::strncpy(text, "580.65.06", length);
    return kSuccess;
  };
  calls.find = [](const char* bus, void** device) {
    *device = &g_device;
    return std::string_view(bus) == "0000:17:00.0" ? kSuccess : kNotSupported;
  };
  calls.clock = [](void*, NvmlClock which, unsigned* megahertz) {
    *megahertz = which == NvmlClock::sm ? 1755 : 2619;
    return kSuccess;
  };
  calls.max_clock = [](void*, NvmlClock which, unsigned* megahertz) {
    *megahertz = which == NvmlClock::sm ? 1980 : 0;
    return which == NvmlClock::sm ? kSuccess : kNotSupported;
  };
  calls.memory = [](void* device, NvmlMemory* memory) {
    EXPECT_EQ(device, &g_device);
    *memory = {std::uint64_t{80} << 30, std::uint64_t{79} << 30, std::uint64_t{1} << 30};
    return kSuccess;
  };
  return calls;
}

TEST(Nvml, TellsDriverClocksAndMemory) {
  GpuDescription gpu;
  gpu.clocks.memory_max_mhz = 2620;  // by the runtime
  AskNvml(FakeCalls(), "0000:17:00.0", gpu);
  EXPECT_EQ(gpu.driver, "580.65.06");
  EXPECT_EQ(gpu.clocks, (Clocks{1755, 1980, 2619, 2620}));  // what it does not tell stays
  EXPECT_EQ(gpu.used, Bytes(std::int64_t{1} << 30));
}

TEST(Nvml, KnowsNothingOfAGpuThatItDoesNotFind) {
  GpuDescription gpu;
  AskNvml(FakeCalls(), "0000:99:00.0", gpu);
  EXPECT_EQ(gpu.driver, "580.65.06");
  EXPECT_EQ(gpu.clocks, Clocks());
  EXPECT_FALSE(gpu.used);
  NvmlCalls broken = FakeCalls();
  broken.init = [] { return kNotSupported; };
  GpuDescription none;
  AskNvml(broken, "0000:17:00.0", none);
  EXPECT_EQ(none.driver, "");
}

}  // namespace
}  // namespace tidemark
