// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/call_source.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tidemark::call_source_test {
namespace {

std::string CallerOf(const std::vector<std::string>& stack) { return CallerOfDriver(stack); }

// A callback of this program's lies innermost, called by CUPTI, called by the driver, called by whom we look for.
TEST(CallerOfTheDriver, IsTheFirstLibraryBehindIt) {
  const std::string own = "/opt/tidemark", cupti = "/usr/local/cuda/lib64/libcupti.so.13",
                    driver = "/usr/lib/libcuda.so.1", nccl = "/usr/lib/libnccl.so.2";
  EXPECT_EQ(CallerOf({own, cupti, driver, driver, nccl, nccl, own}), nccl);
  EXPECT_EQ(CallerOf({own, own, cupti, driver, own}), own);
  EXPECT_EQ(CallerOf({own, "libcupti.so.13", "libcuda.so.580.65", "libcudart.so.13"}), "libcudart.so.13")
      << "the runtime is no driver";
  EXPECT_EQ(CallerOf({own, cupti, driver}), "");
  EXPECT_EQ(CallerOf({own, nccl}), "") << "nobody called the driver";
}

TEST(CallerOfTheDriver, IsNobodyWhereNoDriverIsOnTheStack) { EXPECT_EQ(CallerOfDriver(), ""); }

}  // namespace
}  // namespace tidemark::call_source_test
