// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/category.h"
#include "base/quantity.h"
#include "sim/program/program.h"

namespace tidemark {

/// The highest point of one role's memory, in bytes of tensors (an allocator's rounding is not in it).
struct MemoryPeak {
  Bytes allocated;
  CategoryBytes by_category;  ///< at the first instant of the highest total; sums to `allocated`
  Phase phase = Phase::load;  ///< innermost phase of that instant
  Bytes host;                 ///< the most that it has in host memory, whenever that is
  friend bool operator==(const MemoryPeak&, const MemoryPeak&) = default;
};

/// Where a step's time went, on the compute stream of the last role to finish (ties: lowest stage). The parts sum to
/// `step`: every nanosecond is busy (by kind of work) or idle. Idle time is charged as the stream meets its reasons:
/// while it waits for an event, to what the event was recorded on (a collective, or a message from a peer stage); what
/// is then left until its host has issued the next kernel, to the host, or to a collective for as long as the host
/// waits for one itself. So a wait for a peer that a collective follows is a bubble up to the message and exposed
/// communication after it. Time behind the last kernel belongs to what ends the step.
struct StepTime {
  static constexpr std::int64_t kSeveral = -1;

  Nanos step;
  Nanos compute, recompute, optimizer;
  Nanos exposed_communication, bubble, host;
  std::int64_t role = 0;  ///< the last to finish, by its index; kSeveral: of steps that end on different ones
  friend bool operator==(const StepTime&, const StepTime&) = default;
};

/// What both engines must agree on to the byte and the nanosecond.
struct Evaluation {
  std::vector<MemoryPeak> roles;  ///< one per role of the step
  StepTime time;
  friend bool operator==(const Evaluation&, const Evaluation&) = default;
};

}  // namespace tidemark
