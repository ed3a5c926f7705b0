// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/category.h"
#include "base/quantity.h"
#include "reports/summarise/job_differences.h"

namespace tidemark {

// What `tidemark check` tells: scenario by scenario, whether the peak is what it was. Collected once (by
// reports/check/verdict.h), then rendered purely.

enum class PeakVerdict : std::uint8_t {
  pass,
  grown,
  shrunk,       ///< passes; the baseline can be renewed
  new_one,      ///< has no baseline
  lost,         ///< is in the baseline only
  over_budget,  ///< needs more than its budget
  error,        ///< could not be checked
};
/// "pass", "new", "over_budget", ...
std::string_view Name(PeakVerdict verdict);

/// A family of tensors of which there is more, or less, at the peak than there was.
struct PeakChange {
  Category category = Category::activation;
  std::string tensor;
  std::string phase, until;  ///< from when to when it lives, of the side that has more of it: "forward 0"
  Bytes before, after;

  Bytes difference() const { return after - before; }
};

struct CheckedScenario {
  std::string name;
  std::string file;                          ///< where it is written: of a lost one the baseline
  std::int64_t line = 0;                     ///< 0: not known
  bool measured = false;                     ///< a run; else a prediction
  PeakVerdict against = PeakVerdict::error;  ///< of the peak against the baseline
  std::optional<Bytes> baseline, peak;
  std::string at;                       ///< where the peak is: "forward of microbatch 0"
  double tolerance_percent = 0;         ///< within which a measured peak passes
  std::optional<Bytes> budget, device;  ///< what a device may have to give, and has to
  bool over_budget = false;
  std::vector<PeakChange> grown, shrunk;   ///< largest first; together they sum to the difference of the peaks
  std::vector<JobDifference> job_changed;  ///< values: of the baseline's job, of this one
  std::string message, hint;               ///< of an error
  std::vector<std::string> doubts;         ///< why a measurement is in doubt

  PeakVerdict verdict() const { return over_budget ? PeakVerdict::over_budget : against; }
  bool Fails() const { return verdict() != PeakVerdict::pass && verdict() != PeakVerdict::shrunk; }
  /// Nothing where one of the peaks is not known.
  std::optional<Bytes> delta() const;
};

struct CheckReport {
  std::string scenarios_path, baseline_path, version;
  bool has_baseline = true;                ///< false: there is no such file
  std::vector<CheckedScenario> scenarios;  ///< in the order of their file, lost ones last

  std::size_t Failed() const;
  bool Passes() const { return Failed() == 0; }
  std::size_t Count(PeakVerdict verdict) const;
};

/// What became of a scenario, in one sentence without a full stop: names what grew, by how much, where.
std::string CheckSentence(const CheckedScenario& scenario);
/// What to do about it; empty where there is nothing to do.
std::string CheckHint(const CheckReport& report, const CheckedScenario& scenario);
/// Whether what is now would pass as the baseline: it is another peak, or another set of scenarios.
bool WantsRenewal(const CheckedScenario& scenario);
/// The command that makes what is now the baseline.
std::string RenewCommand(const CheckReport& report);

}  // namespace tidemark
