// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/engine/closed_form.h"
#include "sim/engine/evaluation.h"
#include "sim/engine/time_program.h"
#include "sim/program/program.h"

namespace tidemark {

/// Steps of one role that are alike but for how often the body of one outermost loop runs, as those of a job are under
/// different numbers of microbatches. What lies before the loop, in it and behind it is folded once, for all of them.
class CountedStep {
 public:
  /// `low` and `high` are two such steps, `low` the one whose loop runs fewer times. Nothing where they differ in more
  /// than that, or have several roles.
  static std::optional<CountedStep> Of(const StepProgram& low, std::span<const Costs> costs_of_low,
                                       const StepProgram& high, std::span<const Costs> costs_of_high);

  /// How often the loop runs in the two steps that this was made of.
  std::int64_t low() const { return low_; }
  std::int64_t high() const { return high_; }

  /// What each of these counts comes to: ascending, none below 1. Equal to EvaluateClosedForm of such a step. Cost: the
  /// program once, and then a few comparisons and additions for each count.
  std::vector<Evaluation> Evaluate(std::span<const std::int64_t> counts) const;

 private:
  CountedStep() = default;

  std::int64_t low_ = 0, high_ = 0;
  CountedMemory memory_;
  TimeProgram time_;
  std::size_t loop_ = 0;  ///< of `time_`
  std::int64_t host_issue_ = 0;
};

}  // namespace tidemark
