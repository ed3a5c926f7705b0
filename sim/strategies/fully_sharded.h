// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sim/lower/data_parallel.h"

namespace tidemark {

/// PyTorch's FSDP2 (fully_shard): each block is a unit whose parameters are sharded over the group, gathered before
/// use, and whose gradients are reduce-scattered after its backward. Event order, buffers and back-pressure are those
/// of torch/distributed/fsdp/_fully_shard (_fsdp_param_group.py, _fsdp_collectives.py) with torchtitan's units:
/// embedding, each layer, and final norm with head, which is not resharded after forward. A tied head joins the
/// embedding's unit.
///
/// Settings are the axes: `sync.when` (reduce-scatter every microbatch or the last), `shard.reshard_after_forward`,
/// `shard.reshard_after_backward` (false: only after the last microbatch).
std::unique_ptr<DataParallel> MakeFullySharded(Role& role);

}  // namespace tidemark
