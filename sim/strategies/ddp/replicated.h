// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/lower/data_parallel.h"

namespace tidemark {

/// Whole parameters on every rank and gradients reduced in buckets, as PyTorch's DistributedDataParallel does: each
/// gradient is divided by the number of ranks on its way into a bucket (bucket_layout.h), and a bucket is summed over
/// the ranks as soon as it is full, while the backward pass goes on. What differs in the first steps is in
/// reducer_state.h.
///
/// Settings are the axes: `sync.when`, bucket sizes, `sync.static_graph`, `sync.find_unused_parameters`,
/// `buffers.gradient_as_bucket_view`, `buffers.set_to_none`. With an accumulator dtype that differs from the gradient's
/// (nanotron), every backward adds its gradients to an accumulator of that dtype, and the accumulator is what is
/// averaged. With `shard.optimizer` (ZeRO-1) each rank keeps masters and moments of its part of each block, reduces by
/// reduce-scatter in place, and gathers updated parameters.
///
/// Not counted: the int32 per parameter that the reducer always holds, where neither `sync` setting makes it use it.
std::unique_ptr<DataParallel> MakeReplicated(Role& role);

/// The same for nanotron, which ties what all tensor-parallel ranks hold and sums tied gradients behind the reduction
/// (parallel/tied_parameters.py, sync_tied_weights_gradients). There a bias behind a reduction is on the group's first
/// rank only; here it is on all of them, and so among the sums.
std::unique_ptr<DataParallel> MakeReplicatedWithTies(Role& role);

}  // namespace tidemark
