// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/lower/role.h"
#include "sim/strategies/strategy.h"

namespace tidemark {

/// Writes one stage's program: microbatches in the order of the schedule, blocks in the order of the network, the
/// strategy's hooks around them. Equal iterations become loops; what differs (first and last microbatch, blocks beside
/// a border) is peeled.
Program WriteRole(const Job& job, const Stage& stage, StepKind step, const Strategy& strategy,
                  const std::vector<WindowRun>& windows);

}  // namespace tidemark
