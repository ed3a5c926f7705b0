// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/lint.h"
#include "cli/budget_report.h"
#include "cli/one_batch.h"
#include "cli/rank_peak.h"
#include "models/job/job.h"
#include "profiler/execute/run.h"

namespace tidemark {

/// What `tidemark run` tells: of the memory that of the rank which has most, of all else what rank 0 has seen.
struct RunReport {
  const Job& job;
  std::string device;     ///< "cpu", "cuda"
  std::string exchanges;  ///< by what ranks on GPUs exchange their memory; "": there is one, or none are
  const RunOutcome& outcome;
  const RankPeak& peak;
  std::optional<RunNumerics> numerics;  ///< with --verify
  std::vector<Budget> budgets{};        ///< of all ranks
  std::vector<std::string> reasons{};   ///< why the measurement is in doubt (ReasonsOf)
  std::vector<Lint> lints{};            ///< of the job: numbers that are meant to be wrong are executed all the same
  std::map<std::string, std::string> hardware{};  ///< what it was measured on (DescribeHardware)

  bool NumbersDiffer() const;
  /// Whether numbers differ, or the device ran out of memory.
  bool Finding() const;
};

std::string RenderText(const RunReport& report);
/// Schema tidemark.run/1.
std::string RenderJson(const RunReport& report);

}  // namespace tidemark
