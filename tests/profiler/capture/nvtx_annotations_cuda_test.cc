// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/nvtx_annotations.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "tests/profiler/capture/expect_announced.h"
#include "tests/profiler/capture/nvtx_tool.h"
#include "tests/profiler/execute/executed_job.h"

namespace tidemark::nvtx_annotations_cuda_test {
namespace {

/// The only test that uses NVTX in this process, which looks for a tool once.
TEST(NvtxAnnotations, reachAToolAsTheTraceTellsThem) {
  setenv("NVTX_INJECTION64_PATH", TIDEMARK_NVTX_TOOL, 1);
  RunOutcome run;
  {
    const auto annotations = MakeNvtxAnnotations();
    run = Executed(SmallJob("ddp-last"), 2, {.annotations = annotations.get()});
  }
  void* tool = dlopen(TIDEMARK_NVTX_TOOL, RTLD_LAZY | RTLD_NOLOAD);
  ASSERT_NE(tool, nullptr) << "NVTX has not loaded it";
  const auto get_log = reinterpret_cast<NvtxToolLog* (*)()>(dlsym(tool, "TidemarkNvtxLog"));
  ASSERT_NE(get_log, nullptr);
  const NvtxToolLog& log = *get_log();
  EXPECT_EQ(log.domains, std::vector<std::string>{"tidemark"});
  EXPECT_EQ(log.domains_gone, 1);
  EXPECT_EQ(log.strangers, 0);
  EXPECT_EQ(log.unregistered, 0);
  EXPECT_EQ(log.other_heaps, 0);
  ExpectRangesOf(run.trace, log.all);
  ExpectRegionsOf(run.trace, log.all);
  dlclose(tool);
}

}  // namespace
}  // namespace tidemark::nvtx_annotations_cuda_test
