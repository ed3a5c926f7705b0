// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "reports/check/baseline.h"
#include "reports/check/observed_peak.h"
#include "reports/check/scenario.h"
#include "reports/summarise/check_report.h"

namespace tidemark {

/// A scenario and what was seen of it, or why nothing could be seen.
struct ObservedScenario {
  Scenario scenario;
  Result<ObservedPeak> peak;
};

/// Holds every scenario to its baseline and its budget. A predicted peak is compared to the byte, a measured one within
/// its scenario's tolerance, and only with one that was measured on the same hardware. A peak of the other kind is no
/// baseline. The budget is held by what a device has to have (Fits), on any hardware.
std::vector<CheckedScenario> Judge(const std::vector<ObservedScenario>& observed, const Baseline& baseline,
                                   const std::string& baseline_path);

}  // namespace tidemark
