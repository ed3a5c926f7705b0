// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "reports/check/verdict.h"

namespace tidemark {

/// The scenarios of a file (ParseScenarios).
Result<std::vector<Scenario>> LoadScenarios(const std::string& path);

/// Predicts every scenario, or executes it as `tidemark run` does, one after the other. What is wrong with one is its
/// result. Fails as a whole where it is interrupted, where this machine lacks `device` ("cpu", "cuda") or no scenario
/// runs on it, and under a launcher of ranks, who would each run all of them.
Result<std::vector<ObservedScenario>> Observe(std::vector<Scenario> scenarios, const std::string& device);

}  // namespace tidemark
