// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "sim/lower/data_parallel.h"

namespace tidemark {

/// Each encoder in a DistributedDataParallel of its own, as GradCache wants them: an encoder's gradients are reduced
/// bucket by bucket (bucket_layout.h) in the last chunk that runs through it, or in every chunk (`sync.when`,
/// `sync.forward_in_no_sync`), while the other encoder's wait. Each has its own first backward pass that synchronises,
/// with one bucket of everything, and its own gradients, absent until its first chunk. Gradients are divided by the
/// number of ranks on their way into the bucket.
///
/// The optimizer steps once, over both. zero_grad sets gradients to None; there are no bucket views here.
std::unique_ptr<DataParallel> MakeCachedEncoders(Role& role);

}  // namespace tidemark
