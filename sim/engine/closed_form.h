// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "sim/cost/cost.h"
#include "sim/engine/evaluation.h"
#include "sim/engine/time_program.h"
#include "sim/program/program.h"

namespace tidemark {

/// The highest total of a stretch of program, relative to the total at its start.
struct MemorySegment {
  CategoryBytes net;          ///< end minus start
  Bytes net_total;            ///< of all categories
  Bytes rise;                 ///< highest total minus total at start, at least 0
  CategoryBytes content;      ///< what that instant holds beyond the start; sums to `rise`
  bool rises = false;         ///< false: the highest instant is the start itself
  Phase phase = Phase::load;  ///< of that instant, where it rises
  Bytes host_net, host_rise;  ///< end minus start, and highest minus start, of host memory
};

/// Two stretches in a row; of equally high instants the first counts.
MemorySegment Then(const MemorySegment& first, const MemorySegment& second);
/// A stretch `count` times in a row (0: not at all), without walking it again.
MemorySegment Times(const MemorySegment& body, std::int64_t count);

/// Memory of one role: one fold over the tree, each node visited once.
MemoryPeak FoldMemory(const Program& program);

/// A role's memory around one of its outermost loops: what is there when it begins, an iteration, and what follows.
struct CountedMemory {
  MemorySegment before, body, behind;

  /// The peak where the loop runs so many times.
  MemoryPeak Peak(std::int64_t count) const;
};

/// Of the Repeat with this index among the program's nodes.
CountedMemory FoldMemoryAround(const Program& program, std::size_t loop);

/// Time of a whole step without unrolling it: see the essay in closed_form_time.cc.
StepTime FoldTime(const TimedStep& step);
StepTime FoldTime(const StepProgram& step, std::span<const Costs> costs);

/// Both, for all roles. Equal to Simulate to the byte and the nanosecond. Cost: nodes of the tree, and for time a
/// handful of iterations per Repeat whatever its count.
Evaluation EvaluateClosedForm(const StepProgram& step, std::span<const Costs> costs);

}  // namespace tidemark
