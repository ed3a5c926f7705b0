// SPDX-License-Identifier: Apache-2.0
#include "cli/strategies.h"

#include "sim/strategies/strategy.h"

namespace tidemark {

std::vector<StrategyDefaults> KnownStrategies() {
  std::vector<StrategyDefaults> known;
  for (const Strategy& strategy : AllStrategies()) {
    known.push_back(strategy.defaults);
    known.back().refuse = [strategy](const Job& job) { return strategy.Accept(job); };
  }
  return known;
}

}  // namespace tidemark
