// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "models/job/job.h"
#include "sim/lower/role.h"
#include "sim/program/program.h"

namespace tidemark {

/// Turns a job into the program of each of its roles. `step` tells which optimizer step: in the first one optimizer state does not
/// exist yet and DDP has one bucket; from the second on buckets are those of the steady state.
Result<StepProgram> Lower(const Job& job, StepKind step);

}  // namespace tidemark
