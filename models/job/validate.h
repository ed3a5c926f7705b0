// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "base/result.h"
#include "models/job/job.h"
#include "models/network/block.h"

namespace tidemark {

/// What decides a tensor-parallel rank's table of blocks, besides the network.
Partition PartitionOf(const Job& job);

/// A job with uneven sequences, all of them of mean length: what decides its time. Its loss takes as many chunks as
/// that of the longest.
Job OfMeanLength(const Job& job);

/// Whether the job can be lowered: the layout divides the network, axes do not contradict each other, and no sum of
/// bytes, operations or nanoseconds of a step comes near 64 bits (arithmetic further down may assume that). What a
/// strategy's real system refuses is asked of the strategy, not here. `where` of the error is the key at fault.
Status Validate(const Job& job);

/// All of it that no machine decides; the network's blocks under the job's partition.
Result<std::vector<BlockRun>> ValidateWithoutMachine(const Job& job);
/// The rest, given those blocks.
Status ValidateOnMachine(const Job& job, const std::vector<BlockRun>& blocks);

}  // namespace tidemark
