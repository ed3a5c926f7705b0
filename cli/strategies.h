// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/job/job.h"

namespace tidemark {

/// The strategies of sim/strategies as the job reader takes them.
std::vector<StrategyDefaults> KnownStrategies();

}  // namespace tidemark
