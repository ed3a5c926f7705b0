// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "profiler/device/host_device.h"
#include "profiler/execute/numerics.h"
#include "tests/profiler/execute/memory_events.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark {

/// As ExecutedTogether, but each rank runs the program of its own part of the state, by kernels of this kind. Where
/// gradients are kept each knows which experts all ranks' tokens went to.
inline std::vector<RunOutcome> RanOwnPrograms(const Job& job, std::int64_t steps, const RunOptions& options,
                                              kernels::Queue::Kind kind = kernels::Queue::Kind::cpu) {
  return RunTogether(job.Ranks(), [&](World& world) -> Result<RunOutcome> {
    const LoweredSteps lowered(job, steps, ShardOf(job, world.rank()));
    HostDevice device(kind);
    RunOptions own = options;
    own.device = &device;
    TIDEMARK_ASSIGN(RunOutcome run, RunSteps(job, lowered.steps(), own, world));
    if (options.keep_gradients) {
      TIDEMARK_TRY(run.choices.Join(world));
    }
    return run;
  });
}

inline Model ModelAt(const Job& job, std::int64_t rank) {
  return *Model::Of(job, TensorParallelPlaceOf(job, rank), ShardOf(job, rank));
}

/// In fp64, of parts that ranks of `job` have of them.
inline void ExpectGradientsOf(const RunOutcome& whole, const Job& job, const std::vector<RunOutcome>& ranks) {
  for (std::int64_t rank = 0; rank < job.Ranks(); ++rank) {
    const ParameterParts& gradients = ranks[static_cast<std::size_t>(rank)].gradients;
    ASSERT_FALSE(gradients.empty());
    const Distance distance = DistanceOf(ModelAt(job, rank), gradients, whole.gradients, kExactFloor);
    EXPECT_LT(distance.highest, 1e-10) << "rank " << rank << " at " << distance.tensor;
  }
}

/// The same of a step by the kernels of a processor, and by a GPU's run on the host.
inline void ExpectGradientsByEveryKernel(const RunOutcome& whole, const Job& job) {
  for (const auto kind : {kernels::Queue::Kind::cpu, kernels::Queue::Kind::host}) {
    ExpectGradientsOf(whole, job, RanOwnPrograms(job, 1, Exact(), kind));
  }
}

/// Of two steps of the first rank.
inline void ExpectPredictedEvents(const Job& job) {
  PredictOptions options;
  options.steps = FirstSteps(2);
  const Prediction prediction = *Predict(job, options);
  EXPECT_EQ(MemoryEventsOf(RanOwnPrograms(job, 2, {}).front().trace), MemoryEventsOf(*prediction.roles.front().trace));
}

}  // namespace tidemark
