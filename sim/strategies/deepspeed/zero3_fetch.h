// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "models/job/job.h"
#include "sim/strategies/deepspeed/zero3_modules.h"

namespace tidemark {

/// Parameters that one all-gather fetches. A single one is gathered in place; several go through a flat buffer, from
/// which each is copied when the first of them is waited for, and which is given back when the last of them was.
struct GatherSet {
  std::vector<std::int64_t> members;  ///< ascending
  std::int64_t copy = 0;              ///< tells it from gathers with the same first member whose buffers it overlaps
};

/// What the coordinator does for one module's pass. Gathers are named by their place in FetchPlan::sets.
struct FetchStep {
  std::optional<std::size_t> gather;    ///< before waiting: what is missing
  std::vector<std::size_t> landings;    ///< flat gathers waited for first here
  std::vector<std::size_t> given_back;  ///< flat gathers whose last member is taken here
  std::optional<std::size_t> prefetch;  ///< gathered for later modules
  std::vector<std::int64_t> released;   ///< after the module
};

/// The coordinator over one microbatch.
struct FetchPlan {
  std::vector<GatherSet> sets;              ///< as they are gathered
  std::vector<FetchStep> steps;             ///< parallel to ModuleTrace::uses
  std::vector<std::int64_t> released_late;  ///< when the backward pass is over
  std::vector<bool> available;              ///< by parameter, when the microbatch is over
};

/// Does what DeepSpeed's PartitionedParameterCoordinator (fetch_sub_module, release_sub_module, reset_step) does in one
/// microbatch, with numbers for parameters. `traced`: false in the first microbatch of training, which records the
/// trace: nothing is prefetched, everything is released at once. `available`: gathered when it begins.
FetchPlan PlanFetches(const ModuleTrace& trace, const Shard& shard, bool traced, std::vector<bool> available);

}  // namespace tidemark
