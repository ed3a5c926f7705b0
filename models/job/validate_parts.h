// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/result.h"
#include "models/job/job.h"

namespace tidemark {

// Parts of Validate that have files of their own.

/// Sequences that are shorter than the longest on average.
Status CheckMeanLength(const Job& job);

/// What ranks that share sequences ask of the sequences, and of the network that reads them.
Status CheckContextParallel(const Job& job);

/// What ranks that share a layer's experts ask of the network and of the other ranks.
Status CheckExpertParallel(const Job& job);

/// Which knobs an allocator has, and which of them go together.
Status CheckAllocator(const AllocatorOptions& options);

/// What a loss in chunks asks of the head's input, and of who makes the head's weight gradient when. The network is a
/// valid one.
Status CheckLossInChunks(const Job& job);

}  // namespace tidemark
