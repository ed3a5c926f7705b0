// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"

namespace tidemark {

/// A job whose peak is watched.
struct Scenario {
  std::string name;
  std::string job;               ///< its path
  std::vector<std::string> set;  ///< changes to it: "layout.tp=8"
  bool run = false;              ///< executed and measured instead of predicted
  std::int64_t steps = 0;        ///< the first so many; 0: what the verb (predict, run) does by itself
  std::optional<Bytes> budget;   ///< what a device may have to give
  double tolerance_percent = 0;  ///< of a measured peak, up and down; a predicted one is exact
  std::string file;              ///< where the scenario is written
  std::int64_t line = 0;         ///< and in which line; 0: not known
};

/// How far a measured peak may be from its baseline where the scenario does not say.
inline constexpr double kMeasuredTolerancePercent = 5;

/// What stands in reports, file names and annotations: one line of at most 100 letters.
Status CheckScenarioName(std::string_view name);

/// Reads a scenario file (YAML): `scenarios: [{name, job, set, mode, steps, budget, tolerance}]`. `path` is for
/// messages, and for its folder, from which jobs are named. Refuses unknown keys with the nearest one, and two
/// scenarios of one name.
Result<std::vector<Scenario>> ParseScenarios(std::string_view text, const std::string& path);

}  // namespace tidemark
