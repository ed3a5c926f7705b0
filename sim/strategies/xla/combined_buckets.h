// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/strategies/ddp/bucket_layout.h"

namespace tidemark {

/// Gradients whose all-reduces XLA's combiner merges into one (xla/service/collective_combiner_utils.h): in the order
/// in which they are made, as many as fit `sync.bucket_bytes`; one that is larger than that stays alone. A merged
/// all-reduce can start when its last operand is ready.
std::unique_ptr<BucketLayout> BucketsOfCombiner(const Role& role);

/// Whether all gradients fit one all-reduce.
bool CombinesEverything(const Role& role);

}  // namespace tidemark
