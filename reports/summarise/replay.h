// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/category.h"
#include "base/quantity.h"
#include "reports/summarise/instant_names.h"
#include "traces/place.h"
#include "traces/trace.h"

namespace tidemark {

// What `tidemark replay` tells: the allocations of a trace as other allocators would have served them. Collected once,
// then rendered purely.

/// What came of one allocator.
struct ReplayedSetting {
  std::string allocator;  ///< "torch-caching expandable_segments=true"
  Bytes allocator_peak, reserved_peak;
  Bytes reserved, unused, releasable;  ///< at TraceReplay::at: all, without a tensor, of that in empty segments
  std::int64_t cache_flushes = 0;
  std::optional<Bytes> refused;  ///< the request that the device had no room for
  std::string command;           ///< the command line that replays it
  bool own = false;              ///< as the trace has it

  /// Of what is reserved, the part that no tensor has.
  double fragmentation() const;
};

/// What lies in a segment that also holds free memory.
struct SegmentHolder {
  std::string name;
  Category category = Category::unknown;
  std::int64_t count = 0;
  Bytes bytes;        ///< of all `count`
  std::string since;  ///< when the first of them was allocated, as InstantNames has it
};

struct HeldSegment {
  Bytes bytes, free;
  std::string stream;                  ///< of what lies in it; empty: not known
  std::vector<SegmentHolder> holders;  ///< largest first
};

/// An instant of the replay; of many the highest.
struct ReplayInstant {
  Nanos at;
  Bytes allocated, reserved;
};

struct ReplayReport {
  std::string title, path, origin, role;
  std::size_t events = 0;
  Bytes tensors_peak;                                                    ///< the least that any allocator can do with
  std::optional<Bytes> recorded_allocator_peak, recorded_reserved_peak;  ///< by the trace's own allocator
  std::optional<Bytes> capacity;                                         ///< of the device; nothing: unlimited
  ReplayedSetting replayed;
  PhasePlace at;  ///< where its reserved memory is highest, or where it ran out
  Nanos at_ns;
  bool tells_setting = true;        ///< the trace has a setting of its own; else PyTorch's defaults stand for it
  std::vector<HeldSegment> pinned;  ///< there, most free memory first
  /// Other settings, least reserved first; where one was asked for, the trace's own alone.
  std::vector<ReplayedSetting> others;
  std::vector<ReplayInstant> timeline;  ///< of the replayed one, at most kReplayInstants
};

inline constexpr std::size_t kReplayInstants = 200;

/// A segment by the memory events that allocated what lies in it.
HeldSegment DescribeSegment(const Trace& trace, const InstantNames& names, Bytes bytes, Bytes free,
                            const std::vector<std::size_t>& holders);

/// The events of a replayed trace in at most kReplayInstants stretches of as many events each, of each the instant at
/// which most is reserved, and of these where most is allocated.
std::vector<ReplayInstant> SummariseReplay(const Trace& replayed);

}  // namespace tidemark
