// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/quantity.h"
#include "models/machine/machine.h"
#include "sim/program/program.h"

namespace tidemark {

// What overlap costs
// ------------------
// A collective holds processors of the GPU, so that kernels beside it run s times as long (Machine::overlap_slowdown).
// Which kernels are issued beside a collective is a property of the program (Compute::beside); how many of them still
// find it there is not: an all-reduce of one bucket ends long before the backward pass that it was issued in.
//
// Of a flight whose collectives take C altogether and whose kernels would take K alone: while the collectives run, for
// C, kernels do C / s of their work, and the rest of it is done at full speed. They take C + K - C / s, that is, K
// times
//
//     1 + C / K (1 - 1 / s),
//
// and K s where C lasts as long as that. Each kernel of the flight is stretched by this mean, wherever in the flight it
// stands, so that a loop's iterations cost alike. Of a kernel beside several flights the C / K add up.
//
// Where this stops being true: a stream that has not yet come to the collective when it is waited for has hidden less
// of it; collectives of two flights that run at the same time slow a kernel once, not twice; kernels of other streams
// than the compute stream (FSDP2's copies) suffer as well; and a kernel issued before a collective that does not wait
// for it (FSDP2's prefetch of the next unit while this one's kernels are queued) may find it running, and is not slowed
// here.

/// C and K of each flight of a program.
class Overlap {
 public:
  /// A collective of this flight; or a kernel beside these, by what it takes alone. Summed over all executions.
  void AddCollective(FlightId flight, Nanos time);
  void AddKernel(std::span<const FlightId> beside, Nanos time);

  /// The sum of C / K, of flights that nothing was added to 0. Depends on nothing but the ratio: of n times the
  /// collectives and n times the kernels the same.
  double CollectivesOverKernels(std::span<const FlightId> beside) const;

 private:
  struct Flight {
    Nanos collectives, kernels;
  };
  Flight& At(FlightId flight);

  std::vector<Flight> flights_;
};

/// What a kernel takes that takes `alone` seconds beside nothing. The same where the machine's streams take turns.
Nanos TimeBeside(double collectives_over_kernels, double alone, const Machine& machine);

/// Of all flights of a program, priced node by node. `alone`: by node, what it takes beside nothing.
Overlap OverlapOf(const Program& program, std::span<const Nanos> alone);

}  // namespace tidemark
