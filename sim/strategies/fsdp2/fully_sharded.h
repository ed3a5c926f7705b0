// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/lower/data_parallel.h"

namespace tidemark {

/// PyTorch's FSDP2 (fully_shard): each block is a unit whose parameters are sharded over the group, gathered before
/// use, and whose gradients are reduce-scattered after its backward. Units are torchtitan's: embedding, each layer, and
/// final norm with head, which is not resharded after forward. A tied head joins the embedding's unit. unit_gather.h
/// and gradient_scatter.h say what happens to parameters and to gradients.
///
/// Settings are the axes: `sync.when` (reduce-scatter every microbatch or the last), `shard.reshard_after_forward`,
/// `shard.reshard_after_backward` (false: only after the last microbatch), `shard.reshard_last_unit`,
/// `shard.gathered_layers`, `shard.prefetch_*`, `shard.replicas` (shards are all-reduced behind every scatter),
/// `buffers.set_to_none`, `buffers.wide_chunk_sum`, `loss_scale` and `optimizer_step.offload` (CPUOffloadPolicy:
/// shards, their gradients and the optimizer's state lie in host memory, and the host updates them).
std::unique_ptr<DataParallel> MakeFullySharded(Role& role);

/// The same with set_requires_all_reduce(is_last): replicas are only all-reduced in a window's last microbatch.
std::unique_ptr<DataParallel> MakeHybridSharded(Role& role);

}  // namespace tidemark
