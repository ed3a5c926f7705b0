// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/lower/data_parallel.h"

namespace tidemark {

/// Whole parameters on every rank and gradients reduced in buckets, as torch's DistributedDataParallel does: parameters
/// join the bucket in the order in which their gradients arrive; a bucket closes when it has reached its limit (the
/// first one's is smaller) and is reduced while the backward pass goes on. In the first step all is one bucket, reduced
/// at the end.
///
/// Settings are the axes: `sync.when`, bucket sizes, `buffers.gradient_as_bucket_view`, `buffers.set_to_none`. With an
/// accumulator dtype that differs from the gradient's (nanotron), every backward adds its gradients to an accumulator
/// of that dtype, and the accumulator is what is reduced. With `shard.optimizer` (ZeRO-1) each rank keeps masters and
/// moments of its part of each block, reduces by reduce-scatter in place, and gathers updated parameters.
std::unique_ptr<DataParallel> MakeReplicated(Role& role);

}  // namespace tidemark
