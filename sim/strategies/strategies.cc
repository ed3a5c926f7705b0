// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/text.h"
#include "models/job/fields.h"
#include "sim/lower/window.h"
#include "sim/strategies/strategy.h"

namespace tidemark {

Status Strategy::Accept(const Job& job) const {
  TIDEMARK_TRY(refuse(job));
  TIDEMARK_TRY(WindowsOf(job));
  Job plain;
  plain.axes = defaults.axes;
  for (const Field<Job>& field : JobFields()) {
    if (!IsAxis(field.key) || IsCommonAxis(field.key) || !field.write ||
        std::find(defaults.keys.begin(), defaults.keys.end(), field.key) != defaults.keys.end()) {
      continue;
    }
    const std::string usual = field.write(plain);
    if (field.write(job) != usual) {
      return BadKey(field.key, fmt::format("{} has no such setting", defaults.name),
                    fmt::format("remove the key, or leave it at {}", usual));
    }
  }
  return Done{};
}

const char* Strategy::DeclaredWrong(const Job& job) const {
  if (const char* reason = wrong == nullptr ? nullptr : wrong(job)) {
    return reason;
  }
  const Result<std::vector<WindowRun>> windows = WindowsOf(job);
  return windows ? WhatIsWrongWith(*windows, job) : nullptr;
}

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
