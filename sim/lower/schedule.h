// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "models/job/job.h"

namespace tidemark {

/// One pass over one microbatch: `offset` + iteration of its run, counted in the order in which such passes run.
struct Slot {
  bool forward = true;
  std::int64_t offset = 0;
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
std::vector<SlotRun> ScheduleOf(const Job& job, std::int64_t stage, std::int64_t stages);

}  // namespace tidemark
