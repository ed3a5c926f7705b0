// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "models/job/job.h"

namespace tidemark {

/// What optimizer_step.* rules out by itself, whatever the strategy and the machine.
Status CheckOptimizerStep(const Job& job);

}  // namespace tidemark
