// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/engine/closed_form.h"
#include "sim/engine/evaluation.h"
#include "sim/engine/time_program.h"
#include "sim/program/program.h"

namespace tidemark {

/// Steps that are alike but for how often the body of one outermost loop of each role runs, as those of a job are under
/// different numbers of microbatches. What lies before the loop, in it and behind it is folded once, for all of them.
class CountedStep {
 public:
  /// `low` and `high` are two such steps: in `high` the loop of every role runs more times, by as many for each role.
  /// In `low` its body may stand by itself, or not at all. Nothing where they differ in more than that.
  static std::optional<CountedStep> Of(const StepProgram& low, const StepProgram& high);

  /// How many more iterations `high` has than `low`.
  std::int64_t span() const { return span_; }
  std::size_t roles() const { return memory_.size(); }

  /// Memory of one role of the step whose loops run so many times more than those of `low`. Equal to FoldMemory.
  MemoryPeak Peak(std::size_t role, std::int64_t more) const { return memory_[role].Peak(counts_[role] + more); }

  /// `high` with loops as often as in `low`, without durations.
  TimedStep Reduce(const StepProgram& high, bool streams_take_turns) const;
  /// Times of the steps whose loops run so many times more than in `step`, which Reduce made; `more` ascending, no two
  /// alike. Equal to FoldTime of each; nothing where the roles are never in their loops all at once. Cost: the program
  /// once, and then a few additions for each number.
  static std::optional<std::vector<StepTime>> Times(const TimedStep& step, std::span<const std::int64_t> more);

 private:
  CountedStep() = default;

  std::int64_t span_ = 0;
  std::vector<std::size_t> loops_;    ///< by role: the loop's node in `high`
  std::vector<std::int64_t> counts_;  ///< by role: its iterations in `low`
  std::vector<CountedMemory> memory_;
};

}  // namespace tidemark
