// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/nccl_library_cuda.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tidemark::nccl_library_cuda_test {
namespace {

using ::testing::HasSubstr;

TEST(NcclLibrary, IsOneOfTheVersionsThatHaveTheseCalls) {
  EXPECT_EQ(WhyNotNccl(21800), "");
  EXPECT_EQ(WhyNotNccl(23007), "");
  EXPECT_EQ(WhyNotNccl(21703), "NCCL 2.17.3 is older than 2.18.0");
  EXPECT_EQ(WhyNotNccl(2708), "NCCL 2.7.8 is older than 2.18.0");
  EXPECT_THAT(WhyNotNccl(30000), HasSubstr("NCCL 3.0.0 has other calls"));
}

TEST(NcclLibrary, IsFoundWithoutAGpuOrItIsSaidWhatToInstall) {
  const Result<NcclLibrary> nccl = LoadNccl();
  if (!nccl.ok()) {
    EXPECT_EQ(nccl.error().code, ErrorCode::machine_cannot);
    EXPECT_THAT(nccl.error().hint, HasSubstr("libnccl2"));
    return;
  }
  int version = 0;
  ASSERT_EQ(nccl->get_version(&version), ncclSuccess);
  EXPECT_EQ(nccl->version, NcclVersionText(version));
  EXPECT_THAT(nccl->Describe(ncclInvalidUsage), HasSubstr("invalid usage"));
}

}  // namespace
}  // namespace tidemark::nccl_library_cuda_test
