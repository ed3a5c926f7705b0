// SPDX-License-Identifier: Apache-2.0
#include "cli/strategies.h"

namespace tidemark {

std::vector<StrategyDefaults> KnownStrategies() { return {}; }

}  // namespace tidemark
