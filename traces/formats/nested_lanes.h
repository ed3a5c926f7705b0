// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/quantity.h"

namespace tidemark {

/// From `begin` to `end`, which is not before it.
struct Interval {
  Nanos begin, end;
};

/// The begin or the end of an interval on a lane.
struct LaneMark {
  std::uint32_t lane = 0;
  std::uint32_t interval = 0;  ///< index into what NestInLanes was given
  bool begins = true;
};

/// Timelines draw a slice inside of another one or beside it; slices that overlap otherwise need a line each. Spreads
/// intervals over lanes: on one lane any two are apart or one lies in the other. The marks of a lane are in order of
/// time, and each interval ends before the one that it lies in. Most intervals are on lane 0.
std::vector<LaneMark> NestInLanes(std::span<const Interval> intervals);

}  // namespace tidemark
