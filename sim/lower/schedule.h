// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "models/job/job.h"

namespace tidemark {

enum class Pass : std::uint8_t {
  forward,  ///< loads its input first
  backward,
  load,       ///< from here on GradCache's: copies one chunk of one side to the device
  represent,  ///< forward without saving anything
  join,       ///< concatenates a side's representations
  loss,       ///< of all representations, and its gradient
  again,      ///< forward, with the random numbers of the first time, and the surrogate loss
  surrogate,  ///< backward, from the cached gradient of the representations
};

/// One pass over one microbatch: `offset` + iteration of its run, counted in the order in which such passes run.
struct Slot {
  Pass pass = Pass::forward;
  std::int64_t offset = 0;
  std::int64_t side = 0;  ///< of a dual encoder, which of its two inputs

  /// Whether it matters where the microbatch stands in its window.
  bool in_window() const {
    return pass == Pass::forward || pass == Pass::backward || pass == Pass::again || pass == Pass::surrogate;
  }
};

/// `count` iterations of the same slots, the microbatches advancing by one each time.
struct SlotRun {
  std::int64_t count = 0;
  std::vector<Slot> slots;
  bool reversed = false;  ///< the microbatches go down, from count - 1
};

/// The order in which stage `stage` of `stages` works on `microbatches` microbatches.
///
/// GPipe (nanotron's AFAB): all forwards, then all backwards: `microbatches` in flight. 1F1B: min(m, p - r - 1)
/// forwards to warm up, then one forward and one backward in turn, then the rest: min(m, p - r) in flight
/// (PipeDream-Flush). One stage is plain accumulation under either.
///
/// A single backward pass of the summed loss, over one stage: all forwards, then autograd walks the graphs from the
/// youngest to the oldest.
///
/// GradCache: representations of both sides, chunk by chunk; the loss; then a forward and a backward pass for each
/// chunk of the first side, and of the second. Its microbatches are the chunks of the first side, then of the second.
std::vector<SlotRun> ScheduleOf(const Job& job, std::int64_t stage, std::int64_t stages);

}  // namespace tidemark
