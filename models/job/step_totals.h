// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "models/job/job.h"

namespace tidemark {

/// What a microbatch of the whole network amounts to on one rank, as an upper bound over all pipeline stages.
struct StepTotals {
  long double parameters = 0, tensor_bytes = 0, loaded_bytes = 0, flops = 0, moved_bytes = 0, actions = 0,
              payload_bytes = 0, measured_ns = 0;
};

/// Of a job with these blocks.
StepTotals TotalsOf(const Job& job, const std::vector<BlockRun>& blocks);

}  // namespace tidemark
