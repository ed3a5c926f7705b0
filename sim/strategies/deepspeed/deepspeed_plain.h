// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/lower/data_parallel.h"

namespace tidemark {

/// DeepSpeed without ZeRO (stage 0; deepspeed/runtime/engine.py at edaa7221, buffered_allreduce_fallback): gradients
/// accumulate in `.grad`. Behind the backward pass that synchronises they are flattened in definition order, bucket by
/// bucket, all-reduced, multiplied by 1/N, and copied back. A bucket is closed once it has *passed*
/// `sync.bucket_elements`, so it overshoots by up to one parameter.
///
/// With masters the optimizer is FP16_Optimizer (deepspeed/runtime/fp16/fused_optimizer.py), for bf16 too: a flat
/// master copy of everything; a step casts all gradients one by one and then flattens the casts, so twice 4 bytes per
/// parameter are there for a moment. It takes a step on zeros when it is made, so its moments are there from the start.
/// Without masters (fp32 parameters) it is the plain optimizer.
std::unique_ptr<DataParallel> MakeDeepSpeedPlain(Role& role);

}  // namespace tidemark
