// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/lint.h"
#include "base/result.h"
#include "cli/options.h"
#include "reports/summarise/solution.h"
#include "sim/sweep/alternative_jobs.h"
#include "sim/sweep/priced_row.h"

namespace tidemark {

/// Takes from the priced alternatives to a job those that a Solution shows. Rows come from the closed form, which
/// allows for an allocator with a flat rate; what is shown is simulated as `tidemark predict` does it, and fits where
/// that says so.
class SolvedOptions {
 public:
  /// `solution` says the device's memory and the global batch. All must outlive it.
  SolvedOptions(const JobOptions& job, AlternativeJobs& jobs, Solution& solution)
      : job_(job), jobs_(jobs), solution_(solution) {}

  /// The job itself, which its system may refuse.
  void PredictNow();
  /// The fastest of those that compute the job's numbers, and behind it so many others, each different from it in other
  /// keys than those before. Of ways that cost the same the one that changes less.
  Status Pick(std::vector<PricedRow> rows, std::int64_t others, const std::function<bool()>& cancelled);
  /// What needs least, where nothing fits.
  Status PickNearest(std::int64_t combination);

 private:
  struct Predicted {
    SolvedOption option;
    bool begins = true;  ///< the first steps fit as well
  };
  /// Of rows that cost the same the one that changes least of those that compute the job's numbers, if any does.
  Result<std::optional<Job>> LeastChanged(std::span<const PricedRow> rows, bool knows_fastest);
  Result<Predicted> Predict(const std::vector<std::string>& change) const;

  const JobOptions& job_;
  AlternativeJobs& jobs_;
  Solution& solution_;
  std::vector<Lint> lints_;  ///< of the job itself
};

}  // namespace tidemark
