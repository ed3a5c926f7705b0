// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/lower/data_parallel.h"

namespace tidemark {

/// DeepSpeedZeroOptimizer, ZeRO stages 1 and 2 (deepspeed/runtime/zero/stage_1_and_2.py at edaa7221): whole parameters,
/// optimizer states of one part of them, gradients reduced through a ReductionBucket.
///
///   stage 1                       gradients accumulate in `.grad`; the microbatch that synchronises reduces them
///   behind
///                                 its backward pass, in definition order, or, with `sync.overlap`, from its hooks
///   stage 2 (`shard.gradients`)   every microbatch reduces from its hooks; this rank's part of the result is new each
///                                 time and added to that of the first microbatch when the backward pass is over
///   `sync.coalesce`               both: gradients accumulate in `.grad` and are reduced once, on leaving the block
///
/// In stage 1 the bucket's memory is there from the window's first backward hook until the reduction is over.
std::unique_ptr<DataParallel> MakeDeepSpeedPartitioned(Role& role);

}  // namespace tidemark
