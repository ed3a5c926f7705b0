// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "cli/one_batch.h"
#include "models/job/job.h"
#include "profiler/execute/run.h"

namespace tidemark {

/// What `tidemark run` tells of rank 0.
struct RunReport {
  const Job& job;
  const RunOutcome& outcome;
  std::optional<RunNumerics> numerics;  ///< with --verify

  /// Whether numbers differ, or the device ran out of memory.
  bool Finding() const;
};

std::string RenderText(const RunReport& report);
/// Schema tidemark.run/1.
std::string RenderJson(const RunReport& report);

}  // namespace tidemark
