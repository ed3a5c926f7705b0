// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "models/job/job.h"
#include "sim/program/program.h"

namespace tidemark {

/// What part of its whole each buffer of each role is, as TraceTensor::sharding says it. Where a buffer does not tell
/// (Buffer::holds) it is counted, from what the buffer holds elements of (its name ends in the block or parameter that
/// it belongs to) and how many the network has. A shard is never smaller than its share and, padding aside, not larger;
/// what is no share of the groups that the program declares is "part". Weights, gradients and optimizer state have a
/// whole; of buffers for communication those that belong to a block or parameter; all else is the rank's own.
///
/// Tensor parallelism cuts matrices and leaves norms whole: what holds several parameters is called cut where most of
/// its elements are.
std::vector<std::vector<std::string>> ShardingsOf(const Job& job, const StepProgram& step);

}  // namespace tidemark
