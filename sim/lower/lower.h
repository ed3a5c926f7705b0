// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "models/job/job.h"
#include "sim/lower/role.h"
#include "sim/program/program.h"

namespace tidemark {

/// Called after each pass with its name and what it left, as text.
using PassDump = std::function<void(std::string_view pass, const std::string& text)>;

/// Turns a job into the program of each of its roles, pass by pass. `step` tells which optimizer step: in the first one
/// optimizer state does not exist yet and DDP has one bucket; from the second on buckets are those of the steady state.
/// `rank`: of the group "dp", for strategies whose ranks differ (Strategy::ranks_differ). Ranks that divide padded
/// state do not have equally much of it; the first stands for all in predictions.
Result<StepProgram> Lower(const Job& job, StepKind step, const PassDump& dump = {}, std::int64_t rank = 0);

/// The names of the passes, in order.
std::vector<std::string> LoweringPasses();

}  // namespace tidemark
