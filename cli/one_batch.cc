// SPDX-License-Identifier: Apache-2.0
#include "cli/one_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/lower/lower.h"
#include "sim/strategies/strategy.h"

namespace tidemark {
namespace {

constexpr std::string_view kPlainest = "ddp-every";  // on one rank with one microbatch it does nothing of its own

}  // namespace

Result<Job> OneBatchOf(const Job& job) {
  if (job.axes.sync.when == Sync::When::custom || job.last_window.microbatches > 0) {
    return BadInput("--verify compares one full window of microbatches with one batch, and this job's step is another",
                    "leave out --verify, or what makes its windows others: sync.when: custom, last_window");
  }
  if (const auto* pair = std::get_if<DualEncoder>(&job.network.shape);
      pair != nullptr && (!pair->gather || !(job.CachesRepresentations() || job.Microbatches() == 1))) {
    return BadInput("--verify compares with one contrastive loss over the pairs of all ranks, and this job has several",
                    "leave out --verify, or use gradcache with network.dual_encoder.gather: true");
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
  const std::int64_t parts = job.CachesRepresentations() ? job.accumulation_steps : job.Microbatches();
  one.micro_batch_size = job.micro_batch_size * parts * job.layout.dp;
  return one;
}

namespace {

/// The tensor of the rank that is farthest away, of "distance tensor" of each; "" on ranks that are told nothing.
std::string FarthestOf(std::span<const std::string> ranks) {
  double highest = -1;
  std::string farthest;
  for (const std::string& rank : ranks) {
    const double distance = std::strtod(rank.c_str(), nullptr);  // "inf" as well
    if (distance > highest) {
      highest = distance;
      farthest = rank.substr(rank.find(' ') + 1);
    }
  }
  return farthest;
}

}  // namespace

Result<RunNumerics> CompareWithOneBatch(const Job& job, const RunStep& first, const RunOptions& options,
                                        const RunOutcome& outcome, World& world) {
  RunNumerics numerics;
  TIDEMARK_ASSIGN(numerics.one_batch, OneBatchOf(job));
  TIDEMARK_ASSIGN(const StepProgram program, Lower(numerics.one_batch, StepKind::first));
  RunOptions exact = options;
  exact.exact = exact.keep_gradients = true;
  exact.capacity.reset();
  exact.watch = nullptr;
  exact.annotations = nullptr;
  exact.keep_trace = nullptr;
  TIDEMARK_ASSIGN(const Model model, ModelOf(job, *first.program, world.rank()));
  ExpertChoices choices = outcome.choices;
  if (!choices.empty()) {
    TIDEMARK_TRY(choices.Join(world));
  }
  const bool is_round_robin = model.expert_place().ranks() > 1;  // in any arithmetic to the same ones
  const std::unique_ptr<World> alone = MakeSingleWorld();
  const RunStep step{&program, first.kind};
  RunOptions on_host = exact;
  on_host.device = nullptr;
  on_host.choices = is_round_robin ? &choices : nullptr;
  TIDEMARK_ASSIGN(const RunOutcome reference, RunSteps(numerics.one_batch, std::span(&step, 1), on_host, *alone));
  TIDEMARK_ASSIGN(const RunOutcome same, RunSteps(job, std::span(&first, 1), exact, world));
  std::int64_t roundings = 0;  // a microbatch's way leads through all stages
  for (const Program& role : first.program->roles) {
    roundings += RoundingsOf(role, job.Microbatches(), job.layout.GradientRanks());
  }
  const auto compare = [&](const ParameterParts& gradients, const ParameterParts& expected, DType dtype, double floor) {
    Distance distance = DistanceOf(model, gradients, expected, floor);
    const std::vector<std::string> places = world.GatherTexts(PlacesText(model, gradients));
    if (const auto missing = world.rank() == 0 ? FirstMissing(expected, places) : std::nullopt) {
      distance = {std::numeric_limits<double>::infinity(), *missing};
    }
    const std::vector<std::string> tensors = world.GatherTexts(fmt::format("{} {}", distance.highest, distance.tensor));
    return GradientCheck{dtype, world.Highest(distance.highest), BoundOf(dtype, roundings), FarthestOf(tensors)};
  };
  numerics.exact = compare(same.gradients, reference.gradients, DType::fp64, kExactFloor);
  const Precision& precision = job.axes.precision;
  DType narrowest = precision.params;
  const DType masters = precision.master.value_or(precision.params);  // which weights are made of
  for (const DType dtype : {precision.gradients, precision.accumulate, precision.reduce, masters}) {
    narrowest = SizeOf(dtype) < SizeOf(narrowest) ? dtype : narrowest;
  }
  if (choices.empty() || is_round_robin) {
    numerics.working = compare(outcome.gradients, reference.gradients, narrowest, kWorkingFloor);
    return numerics;
  }
  numerics.routed_tokens = choices.tokens();
  numerics.routed_otherwise = choices.OthersThan(reference.choices);
  on_host.choices = &choices;
  TIDEMARK_ASSIGN(const RunOutcome followed, RunSteps(numerics.one_batch, std::span(&step, 1), on_host, *alone));
  numerics.working = compare(outcome.gradients, followed.gradients, narrowest, kWorkingFloor);
  return numerics;
}

}  // namespace tidemark
