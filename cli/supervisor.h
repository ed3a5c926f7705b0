// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"

namespace tidemark {

struct SupervisedRun {
  std::vector<std::string> command;  ///< mpirun, its options, and the program that is a rank
  std::vector<std::string> ranks;    ///< what they are called: "rank 1 (dp 1, tp 0)"
  Nanos hang_timeout;                ///< after so long a rank stands still (Watchdog); 0: never
  std::string left_behind;           ///< what a run that is cut short leaves, as a sentence; may be empty
};

/// Starts a run's ranks and stays with them. SIGINT, SIGTERM and SIGHUP end all of them. What the launcher says is
/// shown only where the ranks do not account for how it went. The value is the exit code of ranks that have reported
/// themselves; an error tells which rank died or stands still, and where it was: interrupted, machine_cannot, internal
/// where it crashed.
Result<int> Supervise(const SupervisedRun& run);

}  // namespace tidemark
