// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/lint.h"
#include "models/job/job.h"

namespace tidemark {

/// What the job itself gives away.
///   wrong-gradient            the window's gradient is not the mean over its microbatches and ranks
///   dropped-microbatches      a last window is computed and thrown away
///   left-over-microbatches    a loop's own predicate does not step behind its last microbatches: their gradients leak
///                             into the next window unless they are zeroed
///   forward-outside-no-sync   DDP synchronises every microbatch, against the user's intention
///   static-graph-with-no-sync  DDP's static_graph in a loop whose first backward pass is inside no_sync
///   sync-every-microbatch     all-reduces repeated for each microbatch of a window whose sum would have been enough
///   mean-of-means             sequences of unequal length, each microbatch's loss the mean over its own tokens
///   low-precision-sum         many microbatches summed in bf16: zero-mean gradients lose about 1.2e-3 sqrt(M) relative
///                             (measured on 10^6 elements), equal ones are biased by up to 12 % after 128 additions and
///                             stall between 256 and 380
///   early-overflow            an fp16 sum that is multiplied by the number of ranks for each addition
///   view-and-set-to-none      bucket views without zeroing in place
///   retained-graphs           one backward pass for all microbatches
///   loaded-mask               64 MiB or more of an attention mask that no kernel reads
///   experts-of-another-system layers have experts as another system than the strategy's computes them
///   tied-embedding-gathered-twice  torchtitan, whose rotary tables layers have, may gather a tied embedding twice
///   ring-of-another-system    sequences are shared as Megatron-LM shares them, which the strategy's system does not
///   bucket-larger-than-model  a gradient bucket of fixed size, larger than all gradients
///   host-adds-gradients       microbatches are reduced one by one, and the host adds them up
///   gather-without-effect     buffers.tp_gather is set where nothing is gathered
///   recompute-without-gain    attention done again although its kernel keeps no scores
///   contrastive-accumulation  a contrastive loss per microbatch: each pair meets the negatives of its microbatch only
///   contrastive-without-gather  a contrastive loss on each rank by itself
///   pipeline-underfilled      fewer microbatches than pipeline stages: some stage always waits
///   schedule-not-shipped      a pipeline schedule that the strategy's real system does not have
std::vector<Lint> LintJob(const Job& job);

}  // namespace tidemark
