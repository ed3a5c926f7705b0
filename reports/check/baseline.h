// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "reports/check/observed_peak.h"

namespace tidemark {

/// What a scenario's peak was when somebody agreed to it.
struct BaselineEntry {
  ObservedPeak peak;
  std::string reason;   ///< why it is what it is, in that person's words
  std::string version;  ///< of tidemark
};

/// By name of the scenario. Kept in the repository beside the scenarios (`tidemark.baseline/1`).
using Baseline = std::map<std::string, BaselineEntry>;

/// `path` is for messages. Refuses other documents, and entries that lack something.
Result<Baseline> ParseBaseline(std::string_view text, const std::string& path);

/// The same baseline gives the same bytes: sorted, and a line for each tensor and each part of the job.
std::string BaselineText(const Baseline& baseline);

/// Puts a peak into the baseline. An entry that says the same already stays as it is, with its reason: true where it
/// does not.
bool Renew(Baseline& baseline, const std::string& name, BaselineEntry entry);

/// Scenarios that are measured and whose job and steps are those of `run`: those it may be a baseline of.
std::vector<std::string> ScenariosOfJob(const Baseline& baseline, const ObservedPeak& run);

}  // namespace tidemark
