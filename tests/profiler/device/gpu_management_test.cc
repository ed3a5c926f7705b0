// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/gpu_management.h"

#include <gtest/gtest.h>

#include <string>

namespace tidemark {
namespace {

constexpr int kInsufficientSize = 7, kNoPermission = 4;  // nvmlReturn_t

int Fine() { return 0; }
int FindFirst(const char* bus_id, void** gpu) {
  static int only = 0;
  *gpu = &only;
  return std::string(bus_id) == "0000:65:00.0" ? 0 : 6;  // NVML_ERROR_NOT_FOUND
}
int Memory(void*, ManagementCalls::Memory* memory) {
  *memory = {1000, 300, 700};
  return 0;
}
int Three(void*, unsigned* count, void*) {
  *count = 3;
  return kInsufficientSize;
}
int None(void*, unsigned* count, void*) {
  *count = 0;
  return 0;
}
int Refuse(void*, unsigned*, void*) { return kNoPermission; }
int RefuseMemory(void*, ManagementCalls::Memory*) { return kNoPermission; }

const std::string kThere = "0000:65:00.0";

TEST(GpuManagement, SaysWhatIsUsedAndByHowMany) {
  const auto gpu = GpuManagement::Over({Fine, FindFirst, Memory, Three}, kThere);
  ASSERT_TRUE(gpu.has_value());
  EXPECT_EQ(gpu->used(), Bytes(700));
  EXPECT_EQ(gpu->processes(), 3);
  EXPECT_EQ(GpuManagement::Over({Fine, FindFirst, Memory, None}, kThere)->processes(), 0);
}

TEST(GpuManagement, SaysNothingOfWhatItIsNotTold) {
  EXPECT_FALSE(GpuManagement::Over({Fine, FindFirst, Memory, Three}, "0000:66:00.0").has_value());
  const auto gpu = GpuManagement::Over({Fine, FindFirst, RefuseMemory, Refuse}, kThere);
  ASSERT_TRUE(gpu.has_value());
  EXPECT_EQ(gpu->used(), std::nullopt);
  EXPECT_EQ(gpu->processes(), std::nullopt);
}

}  // namespace
}  // namespace tidemark
