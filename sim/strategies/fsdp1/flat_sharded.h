// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/lower/data_parallel.h"

namespace tidemark {

/// PyTorch's FSDP1 (FullyShardedDataParallel, use_orig_params=False): each unit has one flat parameter, sharded over
/// the group, gathered straight into the tensor that the weights are views of, and one flat gradient. docs/fsdp1.md
/// says what happens when, and names the sources.
///
/// Settings are the axes: `sync.when` (a microbatch that does not synchronise runs in no_sync),
/// `shard.reshard_after_forward` (false: SHARD_GRAD_OP), `shard.replicas` (HYBRID_SHARD), `shard.backward_prefetch`,
/// `shard.limit_all_gathers`. With one rank to shard over it is NO_SHARD, as there.
std::unique_ptr<DataParallel> MakeFlatSharded(Role& role);

}  // namespace tidemark
