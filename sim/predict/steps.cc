// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/steps.h"

#include <algorithm>
#include <utility>

#include "models/job/validate.h"
#include "sim/engine/closed_form.h"
#include "sim/program/same_but_for_sizes.h"

namespace tidemark {
namespace {

void Add(StepTime& sum, const StepTime& step, std::int64_t count) {
  sum.step += step.step * count;
  sum.compute += step.compute * count;
  sum.recompute += step.recompute * count;
  sum.optimizer += step.optimizer * count;
  sum.exposed_communication += step.exposed_communication * count;
  sum.bubble += step.bubble * count;
  sum.host += step.host * count;
  sum.role = sum.role == step.role ? sum.role : StepTime::kSeveral;
}

}  // namespace

std::string_view Name(StepKind step) {
  switch (step) {
    case StepKind::first:
      return "first";
    case StepKind::second:
      return "second";
    case StepKind::steady:
      break;
  }
  return "steady";
}

std::vector<StepRun> FirstSteps(std::int64_t count) {
  std::vector<StepRun> runs = {{StepKind::first, 1}};
  if (count > 1) {
    runs.push_back({StepKind::second, 1});
  }
  if (count > 2) {
    runs.push_back({StepKind::steady, count - 2});
  }
  return runs;
}

std::int64_t CountSteps(std::span<const StepRun> runs) {
  std::int64_t steps = 0;
  for (const StepRun& run : runs) {
    steps += run.count;
  }
  return steps;
}

Result<LoweredStep> LowerStep(const Job& job, StepKind kind, std::int64_t rank) {
  LoweredStep lowered;
  TIDEMARK_ASSIGN(lowered.program, Lower(job, kind, {}, rank));
  if (job.mean_sequence_length > 0) {
    TIDEMARK_ASSIGN(lowered.of_mean, Lower(OfMeanLength(job), kind, {}, rank));
    TIDEMARK_CHECK(SameButForSizes(lowered.program, *lowered.of_mean));
  }
  return lowered;
}

Result<std::vector<LoweredRun>> LowerRuns(const Job& job, std::span<const StepRun> runs, std::int64_t rank) {
  std::vector<LoweredRun> lowered;
  for (const StepRun& run : runs) {
    TIDEMARK_ASSIGN(LoweredStep step, LowerStep(job, run.kind, rank));
    std::vector<Costs> costs = PriceAll(step.usual(), job.machine);
    lowered.push_back({std::move(step), run, std::move(costs)});
  }
  return lowered;
}

StepsEvaluation InARow(std::span<const StepRun> runs, std::vector<Evaluation> evaluations) {
  TIDEMARK_CHECK(!runs.empty() && runs.size() == evaluations.size());
  StepsEvaluation all;
  all.whole.roles = evaluations.front().roles;
  all.whole.time.role = evaluations.front().time.role;
  all.peak_steps.resize(all.whole.roles.size());
  std::int64_t step = 0;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    Add(all.whole.time, evaluations[i].time, runs[i].count);
    for (std::size_t role = 0; role < all.whole.roles.size(); ++role) {
      const Bytes host = std::max(evaluations[i].roles[role].host, all.whole.roles[role].host);
      if (evaluations[i].roles[role].allocated > all.whole.roles[role].allocated) {
        all.whole.roles[role] = evaluations[i].roles[role];
        all.peak_steps[role] = step;
      }
      all.whole.roles[role].host = host;
    }
    step += runs[i].count;
  }
  all.runs = std::move(evaluations);
  return all;
}

StepsEvaluation EvaluateClosedForm(std::span<const LoweredRun> runs) {
  std::vector<StepRun> kinds;
  std::vector<Evaluation> evaluations;
  for (const LoweredRun& lowered : runs) {
    kinds.push_back(lowered.run);
    evaluations.push_back(EvaluateClosedForm(lowered.program, lowered.costs));
  }
  return InARow(kinds, std::move(evaluations));
}

}  // namespace tidemark
