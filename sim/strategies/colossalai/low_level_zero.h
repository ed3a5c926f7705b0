// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/lower/data_parallel.h"

namespace tidemark {

/// Colossal-AI's LowLevelZeroOptimizer: whole parameters on every rank, masters and moments cut into N parts, parameter
/// by parameter. `shard.gradients` is stage 2.
std::unique_ptr<DataParallel> MakeLowLevelZero(Role& role);

}  // namespace tidemark
