// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/job/job.h"

namespace tidemark {

/// What is set in a job, as the command line says it: "recompute.policy=full". Several keys change together where one
/// alone would change nothing, or be another training run: half the micro batch takes twice the accumulation steps.
using SingleChange = std::vector<std::string>;

/// Every single change to a job that leaves it the same training run: the same network, machine, sequences, ranks and
/// global batch. Made of the grammar of a job (JobFields) and of the strategies that there are:
///
///   - every other value of a key that takes a few names (recompute.policy, precision.*, layout.sp, schedule, ...), and
///     half and twice of an axis that is a number above zero (bucket sizes, recompute.every, shard.replicas, ...). Axes
///     that the job's strategy does not look at are left out;
///   - each part of a layer that can be computed again, alone, under the policy that looks at it;
///   - a gradient bucket as large as the parameters, where a larger one is allocated whole (DeepSpeed's);
///   - every other named strategy;
///   - half and twice the micro batch, with the accumulation steps the other way;
///   - a factor of two moved between layout.dp and layout.tp or layout.pp, or layout.cp where ranks share sequences
///     already, with the accumulation steps as dp needs.
///
/// A change need not be one that the real system accepts, nor one that has an effect.
std::vector<SingleChange> SingleChanges(const Job& job);

/// Sequences that one step of all ranks trains on. GradCache cuts a rank's batch into chunks, which do not count.
std::int64_t GlobalBatch(const Job& job);

/// Whether two jobs compute with the same loss, optimizer and dtypes, those in which gradients are summed included.
bool SameArithmetic(const Job& a, const Job& b);
/// Whether they compute the same step up to the order of their sums: at the same global batch as well.
bool ComputeAlike(const Job& a, const Job& b);

/// Whether the strategy of an accepted job says that its numbers are wrong (Strategy::DeclaredWrong).
bool IsDeclaredWrong(const Job& job);

}  // namespace tidemark
