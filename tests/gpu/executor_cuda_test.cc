// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>

#include "base/quantity.h"
#include "models/job/allocator_options.h"
#include "profiler/comm/nccl.h"
#include "profiler/device/cuda_device.h"
#include "tests/gpu/needed.h"
#include "tests/profiler/execute/different_parameters.h"
#include "tests/profiler/execute/executed_job.h"

namespace tidemark::executor_cuda_test {
namespace {

RunOutcome OnGpu(const Job& job, std::int64_t steps, RunOptions options) {
  const auto device = Needed(OpenCudaDevice(0));
  const auto alone = MakeSingleWorld();
  const auto world = Needed(OpenNcclWorld(*alone, {.gpu = 0}));
  options.device = device.get();
  return Needed(RunSteps(job, LoweredSteps(job, steps).steps(), options, *world));
}

/// The same step as on the processor: memory to the byte, gradients in fp64.
void ExpectTheProcessors(const Job& job) {
  const RunOptions options{.exact = true, .keep_gradients = true, .kept_update = 2};
  const RunOutcome expected = Executed(job, 2, options), found = OnGpu(job, 2, options);
  EXPECT_NEAR(*found.steps[1].loss, *expected.steps[1].loss, 1e-10);
  EXPECT_EQ(found.allocator_peak, expected.allocator_peak);
  EXPECT_EQ(found.reserved_peak, expected.reserved_peak);
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  ASSERT_FALSE(found.gradients.empty());
  EXPECT_EQ(DifferentParameters(found.gradients, expected.gradients), std::set<std::string>{});
}

class StepOnAGpu : public testing::TestWithParam<std::string> {};

TEST_P(StepOnAGpu, IsTheProcessorsInNumbersAndMemory) { ExpectTheProcessors(SmallJob(GetParam())); }

TEST(ExpertsStepOnAGpu, IsTheProcessorsInNumbersAndMemory) {
  for (const auto dispatcher : {Experts::Dispatcher::all_to_all, Experts::Dispatcher::all_gather}) {
    Job job = SmallJob("megatron");
    Experts& experts = std::get<Decoder>(job.network.shape).experts;
    experts.count = 4;
    experts.per_token = 2;
    experts.ffn = 48;
    experts.shared_ffn = 32;
    experts.shared_gate = true;
    experts.dispatcher = dispatcher;
    ExpectTheProcessors(job);
  }
}

/// Memory comes from cudaMallocAsync itself, whose inside is the driver's: how much tensors need of it is not.
TEST(StepInAPool, HasTheProcessorsNumbersAndRoomForItsTensors) {
  Job job = SmallJob("fsdp2-scatter-each");
  const RunOptions options{.exact = true, .keep_gradients = true, .kept_update = 2};
  job.allocator.kind = AllocatorKind::exact;
  const RunOutcome expected = Executed(job, 2, options);
  job.allocator.kind = AllocatorKind::cuda_async;
  const RunOutcome found = OnGpu(job, 2, options);
  EXPECT_NEAR(*found.steps[1].loss, *expected.steps[1].loss, 1e-10);
  EXPECT_EQ(DifferentParameters(found.gradients, expected.gradients), std::set<std::string>{});
  EXPECT_GE(found.allocator_peak, expected.allocator_peak) << "the sum of what was asked for";
  EXPECT_GE(found.reserved_peak, found.allocator_peak);
  EXPECT_EQ(found.mapped_peak, found.reserved_peak);
}

TEST(StepInAPool, RunsOutOfACapacity) {
  Job job = SmallJob("ddp-last");
  job.allocator.kind = AllocatorKind::exact;
  const Bytes needed = Executed(job, 1).allocator_peak;
  job.allocator.kind = AllocatorKind::cuda_async;
  const RunOutcome run = OnGpu(job, 1, {.capacity = Bytes(needed.count() / 2)});
  EXPECT_TRUE(run.ran_out) << needed.count() << " bytes are needed";
}

INSTANTIATE_TEST_SUITE_P(Strategies, StepOnAGpu,
                         testing::Values("ddp-last", "fsdp2-scatter-each", "deepspeed-zero2", "colossalai-zero2",
                                         "nanotron", "megatron", "alpa", "jax-multisteps"),
                         StrategyName);

}  // namespace
}  // namespace tidemark::executor_cuda_test
