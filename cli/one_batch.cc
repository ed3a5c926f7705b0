// SPDX-License-Identifier: Apache-2.0
#include "cli/one_batch.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "cli/strategies.h"
#include "sim/lower/lower.h"

namespace tidemark {
namespace {

constexpr std::string_view kPlainest = "ddp-every";  // on one rank with one microbatch it does nothing of its own

}  // namespace

Result<Job> OneBatchOf(const Job& job) {
  if (job.axes.sync.when == Sync::When::custom || job.last_window.microbatches > 0 || job.CachesRepresentations()) {
    return BadInput("--verify compares one full window of microbatches with one batch, and this job's step is another",
                    "leave out --verify, sync.when: custom, last_window and gradient_flow");
  }
  const std::vector<StrategyDefaults> known = KnownStrategies();
  const auto plain = std::find_if(known.begin(), known.end(),
                                  [](const StrategyDefaults& strategy) { return strategy.name == kPlainest; });
  TIDEMARK_CHECK(plain != known.end());
  Job one = job;
  one.strategy = plain->name;
  one.axes = plain->axes;
  one.axes.packing = job.axes.packing;
  one.layout = {};
  one.schedule = Schedule::one_f_one_b;
  one.pipeline_microbatches = 0;
  one.accumulation_steps = 1;
  one.micro_batch_size = job.micro_batch_size * job.Microbatches() * job.layout.dp;
  return one;
}

Result<RunNumerics> CompareWithOneBatch(const Job& job, const RunStep& first, const RunOptions& options,
                                        const RunOutcome& outcome, World& world) {
  RunNumerics numerics;
  TIDEMARK_ASSIGN(numerics.one_batch, OneBatchOf(job));
  TIDEMARK_ASSIGN(const StepProgram program, Lower(numerics.one_batch, StepKind::first));
  RunOptions exact = options;
  exact.exact = exact.keep_gradients = true;
  exact.capacity.reset();
  const std::unique_ptr<World> alone = MakeSingleWorld();
  const RunStep step{&program, first.kind};
  TIDEMARK_ASSIGN(const RunOutcome reference, RunSteps(numerics.one_batch, std::span(&step, 1), exact, *alone));
  TIDEMARK_ASSIGN(const RunOutcome same, RunSteps(job, std::span(&first, 1), exact, world));
  TIDEMARK_ASSIGN(const Model model, Model::Of(job, {world.rank() % job.layout.tp, job.layout.tp}));
  const auto compare = [&](const Tensors& gradients, DType dtype, double floor) {
    const Distance distance = DistanceOf(model, gradients, reference.gradients, floor);
    const std::int64_t roundings = RoundingsOf(first.program->roles.front(), job.Microbatches(), job.layout.dp);
    return GradientCheck{dtype, world.Highest(distance.highest), BoundOf(dtype, roundings), distance.tensor};
  };
  numerics.exact = compare(same.gradients, DType::fp64, kExactFloor);
  const Precision& precision = job.axes.precision;
  const bool narrow = SizeOf(precision.params) > SizeOf(precision.gradients);
  numerics.working = compare(outcome.gradients, narrow ? precision.gradients : precision.params, kWorkingFloor);
  return numerics;
}

}  // namespace tidemark
