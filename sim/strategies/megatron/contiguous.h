// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/lower/data_parallel.h"

namespace tidemark {

/// Megatron-LM core's DistributedDataParallel (megatron/core/distributed): gradients accumulate in one contiguous
/// buffer (gradient_buffer.h), of which each parameter's `main_grad` is a view; it is zeroed when a window begins and
/// never freed. The last microbatch of a window reduces it bucket by bucket, as buckets become complete; in the first
/// step, which learns which gradients to expect, after its backward pass. Each bucket is scaled by 1/dp and summed, or
/// with `sync.average_in_collective` averaged by the collective. With `shard.optimizer` (the distributed optimizer) the
/// collective is a reduce-scatter into this rank's part of the bucket, of which alone it keeps masters and moments
/// (owned_parts.h), and updated parameters are gathered bucket by bucket. Its buffer may be in 16 bits
/// (--grad-reduce-in-bf16); then `sync.fp32_accumulation` makes each reduce-scatter an all-to-all and a local sum
/// (fp32_exchange.h).
///
/// A gradient is added to its `main_grad` by a hook and freed. With `buffers.fused_accumulation` the GEMMs of linear
/// layers add to it themselves, and return a dummy: one 16-bit tensor per distinct shape, made at its first use and
/// kept (get_dummy_wgrad of Transformer Engine). Weights of a table network count as linear layers.
///
/// The buffer is a family per parameter and block here, so that layers fold: its bytes are exact, an allocator that
/// rounds sees several tensors where there is one. Gathers end before the next step begins, or with
/// `sync.overlap_gather` run in its first forward pass (forward_gathers.h). Not modelled: norm checks of gradients, and
/// the second transient copy of a tied embedding's gradient that autograd makes where it adds the head's dummy to it.
std::unique_ptr<DataParallel> MakeContiguous(Role& role);

}  // namespace tidemark
