// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <variant>

#include "base/quantity.h"
#include "sim/cost/cost.h"
#include "sim/program/program.h"

namespace tidemark {

/// Every kernel takes 100 ns, every collective 250 ns, every message 30 ns; issuing anything takes the host `issue_ns`.
inline Costs CostsByHand(const Program& program, std::int64_t issue_ns) {
  Costs costs;
  costs.host_issue = Nanos(issue_ns);
  for (const Node& node : program.nodes) {
    const bool kernel = std::holds_alternative<Compute>(node);
    const bool collective = std::holds_alternative<Collective>(node);
    const bool message = std::holds_alternative<Send>(node);
    costs.device.push_back(Nanos(kernel ? 100 : collective ? 250 : message ? 30 : 0));
  }
  return costs;
}

}  // namespace tidemark
