// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>

#include "models/job/allocator_options.h"
#include "profiler/capture/gpu_capture.h"
#include "profiler/capture/gpu_view.h"
#include "profiler/comm/nccl.h"
#include "profiler/device/cuda_device.h"
#include "tests/gpu/needed.h"
#include "tests/profiler/execute/executed_job.h"
#include "traces/trace.h"

// Each of these wants a process of its own: a capture begins before the GPU's context is made.

namespace tidemark::watched_gpu_cuda_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr Bytes kMiB(1 << 20);

/// What somebody takes of the GPU behind everybody's back, before the first step.
RunOutcome Watched(const Job& job, Bytes hidden) {
  const auto capture = Needed(GpuCapture::Begin({.allocation_sources = true}));
  EXPECT_EQ(capture->reduced(), "");
  const auto device = Needed(OpenCudaDevice(0));
  void* behind = nullptr;
  EXPECT_TRUE(hidden == Bytes() || cudaMalloc(&behind, static_cast<std::size_t>(hidden.count())) == cudaSuccess);
  const auto alone = MakeSingleWorld();
  const auto world = Needed(OpenNcclWorld(*alone, {.gpu = 0}));
  RunOutcome run = Needed(RunSteps(
      job, LoweredSteps(job, 2).steps(),
      {.device = device.get(), .capture = capture.get(), .watch = WatchGpu(*device, {.capture = capture.get()})},
      *world));
  cudaFree(behind);
  return run;
}

TEST(AWatchedGpu, ClosesItsBudget) {
  const RunOutcome run = Watched(SmallJob("ddp-last"), {});
  const Budget& budget = *run.budget;
  EXPECT_THAT(budget.reasons, IsEmpty());
  EXPECT_GT(budget[BudgetPart::context], kMiB) << "no context is smaller";
  EXPECT_GT(budget[BudgetPart::modules], Bytes()) << "our kernels";
  EXPECT_GE(budget[BudgetPart::workspace], kMiB * 32) << "what one stream's products are given";
  EXPECT_LE(std::abs(budget.residual().count()), budget.bound().count());
  EXPECT_EQ(budget.used, budget.sum() + budget.residual());
}

TEST(AWatchedGpu, ClosesTheBudgetOfAPool) {
  Job job = SmallJob("ddp-last");
  job.allocator.kind = AllocatorKind::cuda_async;
  const Budget budget = *Watched(job, {}).budget;
  EXPECT_THAT(budget.reasons, IsEmpty());
  EXPECT_GT(budget[BudgetPart::tensors], Bytes());
  EXPECT_LE(std::abs(budget.residual().count()), budget.bound().count());
}

TEST(AWatchedGpu, FindsWhatIsHiddenBehindTheAllocator) {
  const Budget budget = *Watched(SmallJob("ddp-last"), kMiB * 64).budget;
  EXPECT_GT(budget.residual(), kMiB * 32);
  ASSERT_THAT(budget.reasons, Not(IsEmpty()));
  EXPECT_THAT(budget.reasons.back(), HasSubstr("no known source"));
}

TEST(AWatchedGpu, TimesOperationsOnTheProgramsStreams) {
  const RunOutcome run = Watched(SmallJob("ddp-last"), {});
  EXPECT_EQ(run.clock, WorkClock::records);
  EXPECT_EQ(Verify(run.trace), "");
  std::int64_t named = 0;
  for (const Slice& slice : run.trace.slices) {
    EXPECT_LE(slice.start, slice.end);
    EXPECT_LE(slice.end, run.trace.steps.back().end);
    named += run.trace.streams[slice.stream].name == "compute" && slice.span != kNoSpan ? 1 : 0;
  }
  std::int64_t computed = 0;
  const RunOutcome host = Executed(SmallJob("ddp-last"), 2);
  for (const Slice& slice : host.trace.slices) {
    computed += host.trace.streams[slice.stream].name == "compute" ? 1 : 0;
  }
  EXPECT_EQ(named, computed) << "each operation has work, on the stream of the program";
}

}  // namespace
}  // namespace tidemark::watched_gpu_cuda_test
