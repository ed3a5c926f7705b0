// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <string>

#include "base/text.h"
#include "sim/strategies/strategy.h"

namespace tidemark {

std::vector<Strategy> AllStrategies() {
  std::vector<Strategy> all;
  for (std::vector<Strategy>& family : StrategyFamilies()) {
    all.insert(all.end(), family.begin(), family.end());
  }
  return all;
}

Result<Strategy> FindStrategy(std::string_view name) {
  std::vector<std::string> names;
  for (Strategy& strategy : AllStrategies()) {
    if (strategy.defaults.name == name) {
      return std::move(strategy);
    }
    names.push_back(strategy.defaults.name);
  }
  const std::string nearest = Nearest(name, names);
  return BadInput(fmt::format("there is no strategy '{}'", name), nearest.empty()
                                                                      ? "'tidemark list strategies' shows them all"
                                                                      : fmt::format("did you mean '{}'?", nearest));
}

}  // namespace tidemark
