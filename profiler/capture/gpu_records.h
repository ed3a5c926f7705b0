// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/quantity.h"

namespace tidemark {

// What a GPU's profiling interface (CUPTI) said of a stretch of time, in words of our own that do not change with its
// versions. Times are those of the clock that the capture was given (GpuCapture).

/// Memory that came or went: cudaMalloc and its kin, pools, memory of libraries; also a pool that shrank without, which
/// is a record of no bytes.
struct GpuMemoryRecord {
  enum class Kind : std::uint8_t { device, pinned_host, managed, other };
  bool alloc = true;
  Kind kind = Kind::device;
  bool from_pool = false;  ///< of a pool that cudaMallocAsync takes from; the pool's own size is `pool_bytes` then
  std::uint64_t pool = 0;  ///< which pool: its base address
  std::uint64_t address = 0;
  Bytes bytes, pool_bytes;
  Nanos at;
  std::string source;  ///< path of the shared library that asked, where allocation sources are recorded
};

/// Physical memory made and given up (cuMemCreate, cuMemRelease), and where it was put (cuMemMap, cuMemUnmap): of
/// expandable segments and of NCCL. Taken from callbacks on the driver's calls.
struct GpuVirtualMemoryRecord {
  enum class Call : std::uint8_t { create, release, map, unmap };
  Call call = Call::create;
  std::uint64_t handle = 0;   ///< of the physical memory; 0 of an unmap
  std::uint64_t address = 0;  ///< of a map or an unmap
  Bytes bytes;
  Nanos at;
  std::string source;  ///< of a create: path of the shared library that asked, where allocation sources are recorded
};

/// Kernels that came onto the GPU or went: all of one binary.
struct GpuModuleRecord {
  bool load = true;
  std::uint32_t module = 0;
  Bytes bytes;  ///< of the binary (cubin); none of one that goes
  Nanos at;
};

/// Work on a stream of the GPU.
struct GpuWorkRecord {
  enum class Kind : std::uint8_t { kernel, copy, fill };
  Kind kind = Kind::kernel;
  std::string name;  ///< of a kernel
  std::uint32_t stream = 0, correlation = 0;
  Bytes bytes;  ///< of a copy or a fill
  Nanos start, end;
};

/// Calls with this correlation were made while the operation `operation` was being issued (GpuCapture::Issuing).
struct GpuOperationRecord {
  std::uint64_t operation = 0;
  std::uint32_t correlation = 0;
};

/// The host waited for the GPU: for a stream, an event or everything.
struct GpuWaitRecord {
  Nanos start, end;
};

/// Time that tracing itself took.
struct GpuOverheadRecord {
  Nanos start, end;
};

struct GpuRecords {
  std::vector<GpuMemoryRecord> memory;
  std::vector<GpuVirtualMemoryRecord> virtual_memory;
  std::vector<GpuModuleRecord> modules;
  std::vector<GpuWorkRecord> work;
  std::vector<GpuOperationRecord> operations;
  std::vector<GpuWaitRecord> waits;
  std::vector<GpuOverheadRecord> overhead;
  std::int64_t dropped = 0;  ///< records that CUPTI had no room for
  std::int64_t without_times =
      0;                     ///< records with a time that is not known: they were handed out before they were whole
  std::int64_t unknown = 0;  ///< records of kinds that are not read

  /// Behind what is here.
  void Append(GpuRecords more);
  /// Takes work, operations, waits and overhead out of these; what is of memory, and all counts, stay.
  GpuRecords TakeWork();
  /// Memory and modules that came or went after `from`, up to `until`.
  GpuRecords MemoryBetween(Nanos from, Nanos until) const;
  /// Why no measurement may rest on these; none: it may.
  std::vector<std::string> Doubts() const;
};

}  // namespace tidemark
