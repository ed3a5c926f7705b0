// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/profiler/execute/executed_job.h"

namespace tidemark::loaded_mask_test {
namespace {

// The mask that Megatron-LM's data loader makes: 2 * 16^2 bytes in the small job.

std::vector<bool> LivesOfMasks(const Trace& trace) {
  std::vector<bool> lives;
  for (const MemoryEvent& event : trace.memory) {
    const TraceTensor& tensor = trace.tensors[event.tensor.index];
    if (tensor.name == "attention_mask") {
      EXPECT_EQ(tensor.bytes.count(), 2 * 16 * 16);
      EXPECT_EQ(tensor.category, Category::input);
      lives.push_back(event.alloc);
    }
  }
  return lives;
}

TEST(LoadedMask, IsLoadedAndFreedAsPredicted) {
  for (const auto policy : {Recompute::Policy::none, Recompute::Policy::full}) {
    Job job = SmallJob("megatron");
    job.axes.buffers.attention_mask = true;
    job.axes.recompute.policy = policy;
    const RunOutcome run = Executed(job, 3);
    PredictOptions options;
    options.steps = FirstSteps(3);
    const Prediction prediction = *Predict(job, options);
    const Trace& predicted = *prediction.roles.front().trace;
    EXPECT_EQ(LivesOfMasks(run.trace), (std::vector<bool>{1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0}));
    ASSERT_EQ(predicted.memory.size(), run.trace.memory.size());
    for (std::size_t i = 0; i < predicted.memory.size(); ++i) {
      ASSERT_EQ(predicted.memory[i].allocator_bytes, run.trace.memory[i].allocator_bytes) << "event " << i;
    }
    EXPECT_EQ(run.reserved_peak, *prediction.roles.front().reserved);
  }
}

TEST(LoadedMask, ChangesNoNumbers) {
  Job job = SmallJob("megatron");
  const RunOutcome without = Executed(job, 2);
  job.axes.buffers.attention_mask = true;
  const RunOutcome with = Executed(job, 2);
  for (std::size_t step = 0; step < 2; ++step) {
    EXPECT_EQ(with.steps[step].loss, without.steps[step].loss);
  }
}

}  // namespace
}  // namespace tidemark::loaded_mask_test
