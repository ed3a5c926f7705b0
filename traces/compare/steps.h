// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "traces/compare/compare.h"
#include "traces/trace.h"

namespace tidemark {

/// Which steps of two traces are the same, in order: the n-th of a kind with the n-th of that kind; a kind that is not
/// known is like any. Where one of them knows no kinds, it begins with the first step, if the other one begins with
/// that or the second; and it ends in the steady state, if the other one is in that only: then the last steps that both
/// have whole are the same. Empty where one of the traces marks no steps: then all of each is compared. Fails with
/// bad_input where both mark steps and none of one kind is in both.
Result<std::vector<std::pair<std::size_t, std::size_t>>> MatchSteps(const Trace& predicted, const Trace& measured);

/// A trace of these steps of `trace` alone (indices in ascending order), one right after the other from time 0 on. What
/// is alive when the first of them begins is allocated then, outside of phases, as resident tensors are; where steps in
/// between are left out, so is the difference.
Trace KeepSteps(const Trace& trace, const std::vector<std::size_t>& steps);

/// Two traces of the same steps: their matched ones, or all where one of them marks none.
struct SameSteps {
  Trace predicted, measured;
  std::vector<std::string> kinds;                            ///< of the steps; empty where one of them marks none
  std::vector<std::size_t> predicted_steps, measured_steps;  ///< which these are of each trace's; parallel to `kinds`
};
Result<SameSteps> ReduceToSameSteps(const Trace& predicted, const Trace& measured);

/// How long they took, by kind.
std::vector<StepTimes> TimesOfSteps(const SameSteps& same);

}  // namespace tidemark
