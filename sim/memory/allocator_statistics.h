// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/quantity.h"

namespace tidemark {

/// What an allocator can say of itself at an instant, in the terms of torch.cuda.memory_stats. Where a kind has no such
/// thing, it is 0.
struct AllocatorStatistics {
  std::int64_t allocations = 0;     ///< live
  std::int64_t active = 0;          ///< live, or freed with uses that have not ended
  std::int64_t segments = 0;        ///< pieces taken from the device; ranges do not count
  std::int64_t inactive_split = 0;  ///< free pieces of segments of which others are in use: they cannot go back
  Bytes allocated, active_bytes, inactive_split_bytes, reserved;
  Bytes requested;  ///< of what is active, before rounding
  std::int64_t alloc_retries = 0, ooms = 0, device_allocs = 0, device_frees = 0, syncs = 0;
};

}  // namespace tidemark
