// SPDX-License-Identifier: Apache-2.0
#include "cli/strategies.h"

#include "sim/predict/audit.h"
#include "sim/strategies/strategy.h"

namespace tidemark {

std::vector<StrategyDefaults> StrategiesForAudit() {
  std::vector<StrategyDefaults> known = KnownStrategies();
  for (StrategyDefaults& strategy : known) {
    strategy.refuse = [refuse = strategy.refuse](const Job& job) { return refuse(WithPlainBoundary(job)); };
  }
  return known;
}

}  // namespace tidemark
