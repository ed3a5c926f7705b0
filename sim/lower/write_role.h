// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "sim/lower/role.h"
#include "sim/strategies/strategy.h"

namespace tidemark {

/// Writes the program of rank `rank` of the group "dp": microbatches in the order of the schedule, blocks in the order
/// of the network, the strategy's hooks around them. Each chunk of the rank is wrapped by the strategy on its own, as
/// real systems do. Equal iterations become loops; what differs (first and last microbatch, blocks beside a border) is
/// peeled.
Program WriteRole(const Job& job, const std::vector<Stage>& chunks, StepKind step, const Strategy& strategy,
                  const std::vector<WindowRun>& windows, std::int64_t rank);

}  // namespace tidemark
