// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/rational.h"
#include "base/result.h"
#include "models/job/job.h"
#include "sim/lower/wrong_numbers.h"

namespace tidemark {

/// Where a microbatch stands in its accumulation window. Everything that a data-parallel system does differently from
/// one microbatch to the next follows from this.
struct WindowPlace {
  bool pending = false;      ///< earlier microbatches of the window left gradients that were not synchronised yet
  bool reduced = false;      ///< an earlier microbatch of the window was synchronised
  bool synchronises = true;  ///< this one is
  bool last = true;          ///< the optimizer steps behind it
  Rational loss_scale{1};    ///< what its backward pass begins with: 1/M of the window, 1/(M N), or 1/N
  friend bool operator==(const WindowPlace&, const WindowPlace&) = default;
};

/// The place as numbers: equal for equal places.
std::vector<std::int64_t> Described(const WindowPlace& place);

/// `count` microbatches in a row that stand in their windows alike.
struct WindowRun {
  std::int64_t count = 1;
  WindowPlace place;
};

/// The microbatches of one step of the job, in the order in which their backward passes run. A few runs, whatever the
/// number of microbatches, except under `sync.when: custom`, whose expressions are evaluated for each. Refuses
/// expressions that do not parse, divide by zero, never step, or make windows so irregular that too many microbatches
/// would have to be written out one by one.
Result<std::vector<WindowRun>> WindowsOf(const Job& job);

/// The loss's factor in a window that a user's loop divides by `microbatches`. The group's average brings 1/N; a loss
/// over all tokens of the step already holds it, and so does one over all ranks, which leaves 1/M to the update.
Rational LossScaleOf(const Job& job, std::int64_t microbatches);

/// Why some window's gradient is not the mean over its microbatches and ranks, though the system does as it is told;
/// nothing where all are. The optimizer may step on gradients that were not synchronised, or the loss may be divided by
/// another number of microbatches than the window has.
std::optional<WrongNumbers> WhatIsWrongWith(const std::vector<WindowRun>& windows, const Job& job);

}  // namespace tidemark
