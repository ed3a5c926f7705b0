// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "models/job/read.h"
#include "sim/predict/predict.h"
#include "tests/property/random_job.h"
#include "tests/sim/allocation_log.h"

// What every allocator makes of the tensors of random jobs, over two steps.

namespace tidemark::allocators_test {
namespace {

/// The last window of an epoch comes once.
Prediction Predicted(const Job& job, std::optional<Bytes> capacity) {
  std::vector<StepRun> steps = {{StepKind::first, 1}};
  if (job.last_window.microbatches == 0) {
    steps.push_back({StepKind::second, 1});
  }
  Result<Prediction> prediction =
      Predict(job, {.steps = steps, .traces = false, .minimum = !capacity, .capacity = capacity});
  EXPECT_TRUE(prediction.ok()) << JobYaml(job);
  return *prediction;
}

/// Sums of bytes grow from what tensors need to what the device gives, and the smallest limit is sharp.
void Check(const Job& job) {
  const Prediction prediction = Predicted(job, {});
  Bytes minimum;
  for (const RolePrediction& role : prediction.roles) {
    ASSERT_GE(*role.allocator_bytes, role.peak.allocated);
    if (job.allocator.kind == AllocatorKind::exact || job.allocator.kind == AllocatorKind::cuda_async) {
      ASSERT_EQ(*role.allocator_bytes, role.peak.allocated);
    }
    ASSERT_GE(*role.reserved, *role.allocator_bytes);
    ASSERT_GE(*role.minimum, role.peak.allocated);
    if (job.allocator.memory_fraction == 0) {
      ASSERT_LE(*role.minimum, *role.reserved);
    }
    minimum = std::max(minimum, *role.minimum);
  }
  const bool one_role = prediction.roles.size() == 1;  // else a role's success need not be monotone in the capacity
  ASSERT_FALSE(Predicted(job, minimum - Bytes(1)).capacity->outcome.succeeded());
  ASSERT_TRUE(!one_role || Predicted(job, minimum).capacity->outcome.succeeded());
}

TEST(Allocators, OfRandomJobsTakeFromTheirTensorsToTheSmallestLimitThatWorks) {
  JobGenerator generator(20261122);
  std::map<AllocatorKind, int> kinds;
  for (int i = 0; i < 400; ++i) {
    const Job job = generator.Next();
    Check(job);
    ASSERT_FALSE(HasFatalFailure()) << JobYaml(job);
    ++kinds[job.allocator.kind];
  }
  for (const AllocatorKind kind : {AllocatorKind::exact, AllocatorKind::arena, AllocatorKind::cuda_async}) {
    EXPECT_GT(kinds[kind], 15);
  }
  EXPECT_GT(kinds[AllocatorKind::torch_caching], 200);
}

TEST(Allocators, OfEveryKindServeTheSameRandomJobs) {
  JobGenerator generator(5);
  for (int i = 0; i < 30; ++i) {
    Job job = generator.Next();
    for (const auto& [name, options] : EveryAllocator()) {
      job.allocator = options;
      Check(job);
      ASSERT_FALSE(HasFatalFailure()) << name << "\n" << JobYaml(job);
    }
  }
}

}  // namespace
}  // namespace tidemark::allocators_test
