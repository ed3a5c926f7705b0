// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "models/job/read.h"
#include "sim/predict/predict.h"
#include "sim/strategies/strategy.h"
#include "tests/property/random_job.h"
#include "tests/sim/allocation_log.h"
#include "traces/formats/format.h"

// What a prediction says of memory stays when it goes through a snapshot of PyTorch's.

namespace tidemark::torch_snapshot_test {
namespace {

struct Moment {
  bool alloc = true;
  std::int64_t n_bytes = 0, n_reserved = 0;
  friend bool operator==(const Moment&, const Moment&) = default;
};

/// Requests of no bytes are in no snapshot.
std::vector<Moment> MomentsOf(const Trace& trace) {
  std::vector<Moment> moments;
  for (const MemoryEvent& event : trace.memory) {
    const std::int64_t n_bytes = trace.tensors[event.tensor.index].bytes.count();
    if (n_bytes > 0) {
      moments.push_back({event.alloc, n_bytes, event.reserved_bytes.count()});
    }
  }
  return moments;
}

std::int64_t PeakOf(const Trace& trace) {
  std::int64_t alive = 0, peak = 0;
  for (const Moment& moment : MomentsOf(trace)) {
    alive += moment.alloc ? moment.n_bytes : -moment.n_bytes;
    peak = std::max(peak, alive);
  }
  return peak;
}

void Check(const Job& job) {
  std::vector<StepRun> steps = {{StepKind::first, 1}};
  if (job.last_window.microbatches == 0) {  // the last window of an epoch comes once
    steps.push_back({StepKind::second, 1});
  }
  const Result<Prediction> prediction = Predict(job, {.steps = steps, .traces = true, .capacity = {}});
  ASSERT_TRUE(prediction) << prediction.error().Text();
  std::vector<Trace> traces;
  for (const RolePrediction& role : prediction->roles) {
    traces.push_back(*role.trace);
  }
  const Result<std::string> written = (*FindTraceFormat("torch-snapshot"))->Write(traces);
  ASSERT_TRUE(written) << written.error().Text();
  const Result<TraceFile> back = ReadTraces(*written);
  ASSERT_TRUE(back) << back.error().Text();
  ASSERT_EQ(back->traces.size(), traces.size());
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const std::vector<Moment> was = MomentsOf(traces[i]), is = MomentsOf(back->traces[i]);
    ASSERT_EQ(is.size(), was.size());
    for (std::size_t k = 0; k < was.size(); ++k) {
      ASSERT_TRUE(is[k] == was[k]) << "event " << k << ": " << was[k].n_bytes << " of " << was[k].n_reserved
                                   << " became " << is[k].n_bytes << " of " << is[k].n_reserved;
    }
    ASSERT_EQ(PeakOf(back->traces[i]), PeakOf(traces[i]));
    ASSERT_EQ(PeakOf(back->traces[i]), prediction->roles[i].peak.allocated.count());
    ASSERT_EQ(back->traces[i].steps.size(), traces[i].steps.size());
  }
}

TEST(TorchSnapshot, OfTheSampleJobsHasTheirPeaksSizesAndReservedTotals) {
  for (const std::string name : {"gpt2-ddp", "gradcache-bert-base", "nanotron-tinystories-tp4", "llama-3-8b-fsdp2"}) {
    SCOPED_TRACE(name);
    const Result<Job> job = ReadJob(TIDEMARK_TESTS "/jobs/" + name + ".yaml", {}, KnownStrategies());
    ASSERT_TRUE(job) << job.error().Text();
    Check(*job);
  }
}

TEST(TorchSnapshot, OfRandomJobsHasTheirPeaksSizesAndReservedTotalsUnderEveryAllocator) {
  JobGenerator generator(9);
  for (int i = 0; i < 6; ++i) {
    Job job = generator.Next();
    for (const auto& [name, options] : EveryAllocator()) {
      job.allocator = options;
      Check(job);
      ASSERT_FALSE(HasFatalFailure()) << name << "\n" << JobYaml(job);
    }
  }
}

}  // namespace
}  // namespace tidemark::torch_snapshot_test
