// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace tidemark {

/// zero_optimization.reduce_bucket_size, and of what is reduced without ZeRO (engine.py, MEMORY_OPT_ALLREDUCE_SIZE).
constexpr std::int64_t kDeepSpeedBucketElements = 500'000'000;
constexpr const char* kDeepSpeedBucketHint = "DeepSpeed's default is 500000000";

}  // namespace tidemark
