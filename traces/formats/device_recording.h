// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/category.h"
#include "base/dtype.h"
#include "base/quantity.h"
#include "base/result.h"
#include "traces/formats/annotations.h"
#include "traces/formats/string_pool.h"
#include "traces/trace.h"

namespace tidemark {

// What a profiler saw of one device becomes a Trace: allocations and frees find each other by address, and what was
// there before the recording began is added.

inline constexpr std::int64_t kNotTold = -1;
/// Larger amounts are not a recording's: bytes, or nanoseconds of all slices together.
inline constexpr std::int64_t kMostRecorded = std::int64_t{1} << 62;

/// An allocation or a free.
struct RecordedBlock {
  Nanos at;
  std::uint64_t address = 0;
  bool alloc = true;
  std::int64_t n_bytes = 0;  ///< of a free 0: not told, it is its allocation's
  std::int64_t allocator_bytes = kNotTold, reserved_bytes = kNotTold;  ///< totals right after it
  std::uint32_t site = 0;                                              ///< index into DeviceRecording::sites
  std::int32_t index = 0;                                              ///< MemoryEvent::index0: the layer
  std::uint16_t span = kNoSpan;
};

/// Who allocates.
struct AllocationSite {
  std::string name;
  Category category = Category::unknown;
  DType dtype = DType::u8;
};

struct RecordedSlice {
  Nanos start, end;
  std::uint32_t name = 0;            ///< in the pool of names
  std::uint32_t stream = 0;          ///< any number that tells the streams of a device apart
  bool is_copy = false;              ///< of memory, or setting it
  std::optional<Nanos> issued = {};  ///< when the host did, if that is known
};

/// Something that happened once, such as running out of memory.
struct RecordedInstant {
  std::string name;
  Nanos at;
};

struct DeviceRecording {
  std::string origin, role, clock;
  std::vector<AllocationSite> sites;
  std::vector<RecordedBlock> blocks;  ///< by time
  std::vector<RecordedSlice> slices;
  std::vector<std::pair<std::uint32_t, std::string>> streams;  ///< RecordedSlice::stream and its name
  std::vector<RecordedInstant> instants;
  bool is_whole = false;    ///< nothing was there before the first block
  bool counts_own = false;  ///< totals are of what was allocated while it recorded, as PyTorch counts on a processor
};

/// Its trace. All times count from `begin`. Fails with bad_input where numbers are beyond all reason.
Result<Trace> TraceOf(DeviceRecording recording, const Timeline& timeline, const StringPool& names, Nanos begin);

}  // namespace tidemark
