// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/gpu_transport.h"

#include <gtest/gtest.h>

#include <vector>

#include "profiler/comm/nccl.h"
#include "profiler/device/probe.h"

namespace tidemark::gpu_transport_test {
namespace {

TEST(GpuTransport, IsNcclWhereverItTakesTheRanks) {
  EXPECT_EQ(Choose({.gpu_shared = false, .nccl_takes_it = false}), GpuTransport::nccl);
  EXPECT_EQ(Choose({.gpu_shared = true, .nccl_takes_it = true}), GpuTransport::nccl_shared);
  EXPECT_EQ(Choose({.gpu_shared = true, .nccl_takes_it = false}), GpuTransport::staged);
}

TEST(GpuTransport, SaysWhichItIsAndWhy) {
  EXPECT_EQ(Describe(GpuTransport::nccl, "2.28.9"), "NCCL 2.28.9");
  EXPECT_EQ(Describe(GpuTransport::nccl_shared, "2.30.7"), "NCCL 2.30.7, with several ranks on a GPU");
  EXPECT_EQ(Describe(GpuTransport::staged, "2.28.9"),
            "host memory, since several ranks share a GPU, which NCCL 2.28.9 does not take");
  EXPECT_EQ(Describe(GpuTransport::staged, ""), "host memory, since several ranks share a GPU and there is no NCCL");
}

TEST(GpuTransport, SeesThatTwoRanksShareAGpu) {
  EXPECT_FALSE(AnyTwice(std::vector<std::string>{"a, 00", "a, 01", "b, 00"}));  // UUIDs of two machines
  EXPECT_TRUE(AnyTwice(std::vector<std::string>{"a, 00", "b, 00", "a, 00"}));
  EXPECT_FALSE(AnyTwice({}));  // what ranks other than 0 see
}

TEST(GpuWorld, ThatCannotBeOpenedSaysWhy) {
  const auto boot = MakeSingleWorld();
  if (ProbeDevices().reason.empty()) {
    GTEST_SKIP() << "there is a GPU";
  }
  const auto world = OpenNcclWorld(*boot, {});
  ASSERT_FALSE(world.ok());
  EXPECT_EQ(world.error().code, ErrorCode::machine_cannot);
  const auto alone = OpenNcclWorldFromEnvironment({}, {});
  ASSERT_FALSE(alone.ok());
  EXPECT_EQ(alone.error().code, ErrorCode::machine_cannot);
}

}  // namespace
}  // namespace tidemark::gpu_transport_test
