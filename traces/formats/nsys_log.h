// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/quantity.h"
#include "base/result.h"
#include "traces/formats/annotations.h"
#include "traces/formats/device_recording.h"
#include "traces/formats/string_pool.h"

namespace tidemark {

// What of the SQLite export of Nsight Systems (nsys export --type sqlite) matters to memory and streams. Its tables:
// https://docs.nvidia.com/nsight-systems/UserGuide/index.html, "SQLite Schema Reference". Tables without rows are
// missing, columns come and go with versions. Its enumerations are its own, not CUPTI's, and stand in tables of the
// file (ENUM_CUDA_MEM_KIND, ENUM_CUDA_DEV_MEM_EVENT_OPER).

/// A device as one process sees it: addresses of two processes have nothing to do with each other.
struct NsysDeviceKey {
  std::int64_t device = 0, process = 0;
  friend auto operator<=>(const NsysDeviceKey&, const NsysDeviceKey&) = default;
};

/// A row of CUDA_GPU_MEMORY_USAGE_EVENTS.
struct NsysMemory {
  std::int64_t start = 0, address = 0, n_bytes = 0;
  bool alloc = true;
  std::optional<std::int64_t> pool, pool_bytes, correlation;
  std::string name;  ///< of a static variable
};

struct NsysDevice {
  std::vector<NsysMemory> memory;
  std::vector<RecordedSlice> slices;
  std::vector<std::int64_t> correlations;  ///< of each slice: the same number for the call that issued it; -1: not told
};

struct NsysAnnotation {
  std::int64_t process = 0;
  Annotation annotation;
};

struct NsysLog {
  StringPool names;
  std::map<NsysDeviceKey, NsysDevice> devices;
  std::map<std::pair<std::int64_t, std::int64_t>, std::uint32_t> callers;  ///< of the API, by process and correlation
  std::vector<NsysAnnotation> annotations;
  Nanos begin;                  ///< the first time in it
  std::int64_t unreadable = 0;  ///< rows that lack a number that is one
  std::int64_t losses = 0;      ///< times that the profiler said that it lost something
  std::string loss;             ///< the first of them in its words
};

/// Fails with bad_input where it is no database, a damaged one, or has neither memory nor work of a device.
Result<NsysLog> ReadNsysLog(std::string_view bytes);

}  // namespace tidemark
