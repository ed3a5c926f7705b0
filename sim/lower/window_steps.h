// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <vector>

#include "sim/lower/window.h"

namespace tidemark {

/// Whether `holds(const WindowPlace&)` for every microbatch of a step. True of windows that cannot be told, because an
/// expression does not evaluate: that is reported elsewhere.
template <class Holds>
bool HoldsThroughout(const Job& job, Holds holds) {
  const Result<std::vector<WindowRun>> windows = WindowsOf(job);
  return !windows.ok() ||
         std::all_of(windows->begin(), windows->end(), [&](const WindowRun& run) { return holds(run.place); });
}

/// Whether the optimizer steps only behind microbatches that synchronise.
inline bool StepsAreSynchronised(const Job& job) {
  return HoldsThroughout(job, [](const WindowPlace& place) { return place.synchronises || !place.last; });
}

}  // namespace tidemark
