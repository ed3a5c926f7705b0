// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "base/quantity.h"
#include "profiler/comm/communicator.h"
#include "profiler/execute/run.h"
#include "reports/summarise/peak.h"

namespace tidemark {

/// The memory of one rank of a run.
struct RankPeak {
  std::int64_t rank = 0;
  std::string role;
  Peak peak;  ///< of tensors
  Bytes allocator, reserved, mapped;
  std::int64_t cache_flushes = 0;
};

/// That of the rank with the highest peak, of equals the first; on rank 0 only. All ranks call it.
RankPeak HighestPeak(World& world, const RunOutcome& own);

}  // namespace tidemark
