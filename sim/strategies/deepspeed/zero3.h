// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/lower/data_parallel.h"

namespace tidemark {

/// DeepSpeed's ZeRO stage 3 (deepspeed/runtime/zero/stage3.py and the files beside it, commit edaa7221): parameters,
/// gradients and optimizer states are partitioned over the group, parameter by parameter, each padded to the ranks.
/// Whole parameters come and go around the modules that use them (zero3_fetcher.h), gradients go through a bucket that
/// is there from the start into a partition that is there from the start (zero3_reducer.h), in every microbatch.
///
/// The step takes sub groups of up to 1e9 elements of partitions (sub_group_size), cut here between blocks: the
/// gradients of one are joined and cast to fp32, the fp32 masters updated and cast back to the partitions.
///
/// Settings are the axes: `sync.bucket_elements`, `sync.overlap`, `shard.prefetch_elements`, `shard.max_live_elements`,
/// `shard.reuse_distance`, `shard.persistence_threshold`, `precision.accumulate`.
std::unique_ptr<DataParallel> MakeZero3(Role& role);

}  // namespace tidemark
