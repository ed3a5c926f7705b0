// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "profiler/comm/nccl.h"
#include "profiler/device/cuda_device.h"
#include "tests/profiler/execute/different_parameters.h"
#include "tests/profiler/execute/executed_job.h"

namespace tidemark {
namespace {

RunOutcome OnGpu(const Job& job, std::int64_t steps, RunOptions options) {
  auto device = OpenCudaDevice(0);
  EXPECT_TRUE(device.ok()) << device.error().Text();
  const auto alone = MakeSingleWorld();
  auto world = OpenNcclWorld(*alone, {.gpu = 0});
  EXPECT_TRUE(world.ok()) << world.error().Text();
  options.device = device->get();
  auto run = RunSteps(job, LoweredSteps(job, steps).steps(), options, **world);
  EXPECT_TRUE(run.ok()) << run.error().Text();
  return std::move(*run);
}

class StepOnAGpu : public testing::TestWithParam<std::string> {};

/// The same step as on the processor: memory to the byte, gradients in fp64.
TEST_P(StepOnAGpu, IsTheProcessorsInNumbersAndMemory) {
  const Job job = SmallJob(GetParam());
  const RunOptions options{.exact = true, .keep_gradients = true, .kept_update = 2};
  const RunOutcome expected = Executed(job, 2, options), found = OnGpu(job, 2, options);
  EXPECT_NEAR(*found.steps[1].loss, *expected.steps[1].loss, 1e-10);
  EXPECT_EQ(found.allocator_peak, expected.allocator_peak);
  EXPECT_EQ(found.reserved_peak, expected.reserved_peak);
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  ASSERT_FALSE(found.gradients.empty());
  EXPECT_EQ(DifferentParameters(found.gradients, expected.gradients), std::set<std::string>{});
}

INSTANTIATE_TEST_SUITE_P(Strategies, StepOnAGpu,
                         testing::Values("ddp-last", "fsdp2-scatter-each", "deepspeed-zero2", "colossalai-zero2",
                                         "nanotron", "megatron", "alpa", "jax-multisteps"),
                         StrategyName);

}  // namespace
}  // namespace tidemark
