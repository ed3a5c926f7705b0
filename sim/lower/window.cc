// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/window.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "base/text.h"
#include "sim/lower/alike_blocks.h"
#include "sim/lower/boundary.h"

namespace tidemark {
namespace {

/// Appends one microbatch, to the last run where it stands as that one does.
void Append(std::vector<WindowRun>& runs, const WindowPlace& place, std::int64_t count = 1) {
  if (count == 0) {
    return;
  }
  if (!runs.empty() && runs.back().place == place) {
    runs.back().count += count;
  } else {
    runs.push_back({count, place});
  }
}

/// DDP decides at forward: a forward pass outside no_sync synchronises, whatever encloses the backward pass.
bool SynchronisesEach(const Job& job) {
  return job.axes.sync.when == Sync::When::every || !job.axes.sync.forward_in_no_sync;
}

std::vector<WindowRun> OneWindow(const Job& job) {
  const std::int64_t microbatches = job.Microbatches();
  const bool short_window = microbatches != job.accumulation_steps;
  const bool rescales = job.last_window.policy == LastWindow::Policy::rescaled;
  const bool steps = !short_window || job.last_window.policy != LastWindow::Policy::drop;
  const bool each = SynchronisesEach(job);
  const Rational scale = LossScaleOf(job, short_window && !rescales ? job.accumulation_steps : microbatches);
  // A loop that drops the rest never reaches the microbatch that would have synchronised.
  const bool end_synchronises = each || steps;
  std::vector<WindowRun> runs;
  if (microbatches == 1) {
    return {{1, {false, false, end_synchronises, steps, scale}}};
  }
  Append(runs, {false, false, each, false, scale});
  Append(runs, {!each, each, each, false, scale}, microbatches - 2);
  Append(runs, {!each, each, end_synchronises, steps, scale});
  return runs;
}

/// What a user's own predicate makes of the microbatches: several windows, perhaps of several sizes, each divided by
/// `accumulation_steps`, as the loop that such predicates are found in does.
Result<std::vector<WindowRun>> CustomWindows(const Job& job) {
  TIDEMARK_ASSIGN(const Boundary boundary, Boundary::Of(job));
  TIDEMARK_ASSIGN(const std::vector<Boundary::Place> places, boundary.Places());
  std::vector<WindowRun> runs;
  WindowPlace place;
  place.loss_scale = LossScaleOf(job, job.accumulation_steps);
  bool stepped = false;
  for (const Boundary::Place& at : places) {
    place.synchronises = at.synchronises;
    place.last = at.steps;
    stepped |= place.last;
    Append(runs, place);
    place.reduced = !place.last && (place.reduced || place.synchronises);
    place.pending = !place.last && !place.synchronises;
  }
  if (!stepped) {
    return boundary.NeverSteps();
  }
  return runs;
}

/// A microbatch written out is some tens of kilobytes of program.
constexpr std::int64_t kMostIrregular = 256;

/// Microbatches, or loops over microbatches that stand alike, that remain when repeating windows are written once.
std::int64_t CountWritten(const std::vector<WindowRun>& runs) {
  std::vector<std::vector<std::int64_t>> described;
  std::vector<std::int64_t> starts{0};  // of runs, up to each microbatch
  for (const WindowRun& run : runs) {
    described.insert(described.end(), static_cast<std::size_t>(run.count), Described(run.place));
    starts.push_back(starts.back() + 1);
    starts.insert(starts.end(), static_cast<std::size_t>(run.count - 1), starts.back());
  }
  const AlikeBlocks alike(described);
  std::int64_t written = 0;
  for (std::int64_t i = 0; i < std::ssize(described);) {
    const std::int64_t end = i + alike.Left(i);
    written += std::min(alike.Period(i), starts[static_cast<std::size_t>(end)] - starts[static_cast<std::size_t>(i)]);
    i = end;
  }
  return written;
}

Result<std::vector<WindowRun>> RegularWindows(const Job& job) {
  if (job.accumulation_steps > Boundary::kMostMicrobatches) {
    return BadKey("sync.when",
                  fmt::format("expressions are evaluated for each of at most {} microbatches, not {}",
                              Grouped(Boundary::kMostMicrobatches), Grouped(job.accumulation_steps)),
                  "set sync.when to last or every, or lower accumulation_steps");
  }
  TIDEMARK_ASSIGN(std::vector<WindowRun> runs, CustomWindows(job));
  const std::int64_t written = std::ssize(runs) > kMostIrregular ? CountWritten(runs) : 0;
  if (written > kMostIrregular) {
    return BadKey(
        "sync.expression",
        fmt::format("its windows do not repeat: {} stretches of microbatches would be written out one by one, "
                    "more than {}",
                    Grouped(written), kMostIrregular),
        "use windows that repeat within 64 microbatches, or lower accumulation_steps");
  }
  return runs;
}

/// GradCache: the chunks of one side, then of the other. Each encoder has a DDP of its own, which synchronises in its
/// last chunk; one that serves both sides does so twice. The loss is over all of them at once, on all ranks: a sum over
/// ranks, which the average over ranks makes too small by their number. One over this rank's alone is right as it is.
std::vector<WindowRun> CachedWindow(const Job& job) {
  const auto* network = std::get_if<DualEncoder>(&job.network.shape);
  const bool shared = network != nullptr && network->shared;
  const bool gathers = network == nullptr || network->gather;
  const bool each = SynchronisesEach(job);
  const std::int64_t chunks = job.Microbatches();
  const Rational scale((job.axes.loss_times_ranks ? job.layout.dp : 1), chunks * (gathers ? job.layout.dp : 1));
  std::vector<WindowRun> runs;
  for (const bool second : {false, true}) {
    const bool reduced = second && shared;
    if (chunks > 1) {
      Append(runs, {false, reduced, each, false, scale});
      Append(runs, {!each, reduced || each, each, false, scale}, chunks - 2);
    }
    Append(runs, {!each && chunks > 1, reduced || (each && chunks > 1), true, second, scale});
  }
  return runs;
}

}  // namespace

Rational LossScaleOf(const Job& job, std::int64_t microbatches) {
  const LossScale scale = job.axes.loss_scale;
  if (scale == LossScale::summed_tokens) {
    return Rational(1);
  }
  const std::int64_t divided = scale == LossScale::global_batch ? 1 : microbatches;
  return Rational(1, divided * (scale == LossScale::microbatches ? 1 : job.layout.GradientRanks()));
}

std::vector<std::int64_t> Described(const WindowPlace& place) {
  return {place.pending,
          place.reduced,
          place.synchronises,
          place.last,
          place.loss_scale.numerator(),
          place.loss_scale.denominator()};
}

Result<std::vector<WindowRun>> WindowsOf(const Job& job) {
  if (job.CachesRepresentations()) {
    return CachedWindow(job);
  }
  return job.axes.sync.when == Sync::When::custom ? RegularWindows(job) : OneWindow(job);
}

std::optional<WrongNumbers> WhatIsWrongWith(const std::vector<WindowRun>& windows, const Job& job) {
  if (job.CachesRepresentations()) {
    return std::nullopt;  // one loss, and one window
  }
  const char* const hint =
      job.axes.sync.when == Sync::When::custom
          ? "an ordinary window is sync.when: last, or sync.expression: (i + 1) % steps == 0"
          : "divide a short window's loss by the microbatches it has: last_window.policy: rescaled";
  std::int64_t microbatches = 0;
  for (const WindowRun& run : windows) {
    const WindowPlace& place = run.place;
    microbatches += run.count;
    if (!place.last) {
      continue;
    }
    // Behind a microbatch that steps the next window begins, so those of one run are windows of one each.
    const std::int64_t window = run.count > 1 ? 1 : microbatches;
    microbatches = 0;
    if (!place.synchronises && job.layout.GradientRanks() > 1) {
      return WrongNumbers{"unsynchronised-step",
                          "the optimizer steps on gradients that were not synchronised: replicas drift apart", hint};
    }
    if (place.loss_scale != LossScaleOf(job, window)) {
      return WrongNumbers{"wrong-divisor", "the loss is divided by another number of microbatches than the window has",
                          hint};
    }
  }
  return std::nullopt;
}

}  // namespace tidemark
