// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "sim/strategies/requirement.h"

namespace tidemark {

/// zero_optimization.reduce_bucket_size, and of what is reduced without ZeRO (engine.py, MEMORY_OPT_ALLREDUCE_SIZE).
constexpr std::int64_t kDeepSpeedBucketElements = 500'000'000;
constexpr const char* kDeepSpeedBucketHint = "DeepSpeed's default is 500000000";

/// engine.py, _configure_zero_optimizer, with zero_force_ds_cpu_optimizer left at true.
inline Requirement OffloadsAdamW(const Job& job) {
  return {!job.axes.optimizer_step.offload || job.optimizer == OptimizerKind::adamw, "optimizer_step.offload",
          "You are using ZeRO-Offload with a client provided optimizer which in most cases will yield poor "
          "performance. Please either use deepspeed.ops.adam.DeepSpeedCPUAdam (and with other ones it is not modelled)",
          "set optimizer to adamw"};
}
inline Requirement OffloadIsFused(const OptimizerStep& step) {
  return {!step.offload || step.kernel == OptimizerStep::Kernel::fused, "optimizer_step.kernel",
          "DeepSpeedCPUAdam does the whole update of an element in one pass", "set optimizer_step.kernel to fused"};
}

}  // namespace tidemark
