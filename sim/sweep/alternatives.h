// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "models/job/job.h"
#include "sim/sweep/axis.h"

namespace tidemark {

/// Keys that Alternatives() varies by itself, of which some may be kept: "layout.tp" of "layout".
const std::vector<std::string>& AlternativeKeys();

/// The ways to do a job's training run on as many ranks and, with that many sequences a step, at the same global batch,
/// as axes of a SweepSpace:
///
///   - strategy: every named one;
///   - recompute.policy: all that there are;
///   - micro_batch_size: what divides the global batch, beyond 256 powers of two only, and the job's own;
///   - layout: every {dp, tp, pp} of as many ranks, tp within a node and pp up to the network's layers, or the job's,
///     with each of `vpp` model chunks a stage; chunks that do not divide the layers have one more in the middle of the
///     pipeline. With each of `cp` ranks that share a sequence, as far as they divide the job's.
///
/// What is in `kept` stays as the job has it. A combination need not be one that the real system accepts.
std::vector<SweepAxis> Alternatives(const Job& job, std::int64_t global_batch, const std::set<std::string>& kept,
                                    const std::vector<std::int64_t>& vpp, const std::vector<std::int64_t>& cp);

}  // namespace tidemark
