// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>

#include "models/job/job_template.h"
#include "models/machine/machine.h"
#include "sim/sweep/groups.h"

namespace tidemark {

/// One of the machines of a sweep, where all have the same name and memory, so that its rates are varied at most.
std::optional<Machine> CommonMachine(const SweepGroups& groups, JobTemplate& job);

}  // namespace tidemark
