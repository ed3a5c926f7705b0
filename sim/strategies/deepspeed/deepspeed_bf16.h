// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/lower/data_parallel.h"

namespace tidemark {

/// DeepSpeed's BF16_Optimizer (deepspeed/runtime/bf16_optimizer.py at edaa7221), which the engine takes for bf16
/// parameters with fp32 accumulation in ZeRO stage 1: one flat fp32 gradient of all parameters stays from step to step;
/// every backward adds its bf16 `.grad`, which stays too and is zeroed in place before the next. The microbatch that
/// synchronises all-reduces the flat gradient as one message (engine.allreduce_bucket: a list of one tensor is not
/// copied), cast to `precision.reduce` and back where that differs, and multiplies by 1/N afterwards.
std::unique_ptr<DataParallel> MakeDeepSpeedBf16(Role& role);

}  // namespace tidemark
