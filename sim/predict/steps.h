// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "models/job/job.h"
#include "sim/cost/cost.h"
#include "sim/engine/evaluation.h"
#include "sim/lower/lower.h"

namespace tidemark {

std::string_view Name(StepKind step);

/// Equal optimizer steps in a row.
struct StepRun {
  StepKind kind = StepKind::steady;
  std::int64_t count = 1;
};

/// A training's first `count` steps: the first, the second, then steady ones.
std::vector<StepRun> FirstSteps(std::int64_t count);

std::int64_t CountSteps(std::span<const StepRun> runs);

/// The program of a step. Where sequences are uneven, memory is that of the longest and time that of the mean: the
/// program is written for both lengths, node for node the same but for sizes, and the nodes of one take the costs of
/// the other.
struct LoweredStep {
  StepProgram program;                 ///< of the longest sequences
  std::optional<StepProgram> of_mean;  ///< where they are uneven

  /// What costs, messages and arithmetic are counted in.
  const StepProgram& usual() const { return of_mean ? *of_mean : program; }
};

/// `rank`: as Lower takes it.
Result<LoweredStep> LowerStep(const Job& job, StepKind kind, std::int64_t rank = 0);

/// Every step of a run, and what its nodes cost.
struct LoweredRun : LoweredStep {
  StepRun run;
  std::vector<Costs> costs;  ///< parallel to program.roles
};

/// `rank`: as Lower takes it.
Result<std::vector<LoweredRun>> LowerRuns(const Job& job, std::span<const StepRun> runs, std::int64_t rank = 0);

/// What several steps in a row come to.
struct StepsEvaluation {
  Evaluation whole;                      ///< times added up, the highest peak of each role
  std::vector<std::int64_t> peak_steps;  ///< by role: the step that first reaches its peak, counted from 0
  std::vector<Evaluation> runs;          ///< of one step of each run

  friend bool operator==(const StepsEvaluation&, const StepsEvaluation&) = default;
};

/// Puts steps one after the other. A step begins when the one before it is done on every role, so that times add up;
/// memory goes on where it was, so that of equally high peaks the first counts. `evaluations` run parallel to `runs`.
StepsEvaluation InARow(std::span<const StepRun> runs, std::vector<Evaluation> evaluations);

/// All steps by closed form; equal steps are evaluated once.
StepsEvaluation EvaluateClosedForm(std::span<const LoweredRun> runs);

}  // namespace tidemark
