// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/quantity.h"
#include "models/job/allocator_options.h"
#include "traces/trace.h"

namespace tidemark {

/// A segment that holds free memory, and what keeps it from going back to the device.
struct PinnedSegment {
  Bytes bytes, free;
  std::vector<std::size_t> holders;  ///< memory events of the trace that allocated what lies in it, largest first
};

/// The allocations of a trace as another allocator would have served them.
struct TraceReplay {
  /// The same trace, with the addresses and totals of this allocator; where memory ran out, up to there, and
  /// Trace::missing says so. What the whole process takes is not known.
  Trace trace;
  Bytes allocator_peak, reserved_peak;
  /// The event after which reserved is highest, of several that at which most is allocated; where a request was
  /// refused, the one before it.
  std::size_t at = 0;
  Bytes reserved, allocated;          ///< after that event
  std::vector<PinnedSegment> pinned;  ///< at that event, most free memory first
  Bytes releasable;                   ///< at that event: segments without any tensor
  std::int64_t cache_flushes = 0;
  std::optional<std::size_t> refused;  ///< the event whose request was refused
  Bytes refused_bytes;                 ///< what it asked for

  /// Of what is reserved at that event, the part that no tensor has.
  double fragmentation() const;
};

/// Plays the memory events of a sound trace into a fresh allocator on a device of so many bytes. A free that waits for
/// other streams is over when the next request is issued at or after its `ready`. The host waits for all streams where
/// a step begins that is not the first. Cost: linear in the events, played twice.
TraceReplay ReplayTrace(const Trace& trace, const AllocatorOptions& options, Bytes capacity);

}  // namespace tidemark
