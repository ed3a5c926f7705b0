// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

#include "base/result.h"
#include "models/job/job.h"

namespace tidemark {

/// Something a system insists on: a key of the job, whether it holds, and what to say where it does not. An axis that a
/// strategy would not look at is such a requirement too: nothing a user sets may be ignored in silence.
struct Requirement {
  bool holds;
  const char* key;
  const char* message;
  const char* hint;
};

/// The first requirement that does not hold, as an error.
Status Check(std::span<const Requirement> requirements);

/// Autograd's own rule, which holds wherever a system leaves `.grad` to it.
Requirement GradientsLikeParameters(const Precision& precision);
/// Of a system that shards parameters, gradients and optimizer states alike: names the key that says otherwise.
/// `whole_parameters` is a hint to whoever wants these whole; empty: there is no way.
Requirement ShardsAll(const Shard& shard, const char* message, const char* whole_parameters = "");
/// Of one that shards nothing over data.
Requirement ShardsNothing(const Shard& shard, const char* message);
/// Of a system that makes its optimizer itself, or torch's without saying which of its implementations.
Requirement NoForLoop(const OptimizerStep& step);
/// Of a system whose clipping is not modelled, for this reason.
Requirement DoesNotClip(const OptimizerStep& step, const char* reason);
/// Of a system that is not PyTorch: the losses that take chunks are.
Requirement NoLossInChunks(Partition::Loss loss);
/// Of a system whose optimizer does not go to host memory here, for this reason.
Requirement KeepsOptimizer(const OptimizerStep& step, const char* reason);
/// Of a system with a bucket of `sync.bucket_elements`.
Requirement HasBucket(const Sync& sync, const char* hint);

}  // namespace tidemark
