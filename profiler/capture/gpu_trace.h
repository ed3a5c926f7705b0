// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/quantity.h"
#include "profiler/capture/gpu_records.h"
#include "traces/trace.h"

namespace tidemark {

/// An operation as the host issued it.
struct IssuedOperation {
  std::string name;
  std::uint16_t span = kNoSpan;  ///< the phase that issued it (Slice::span)
};

/// What the capture calls by number.
struct GpuNames {
  std::uint64_t first = 0;                       ///< number of the first of these, as given to GpuCapture::Issuing
  std::span<const IssuedOperation> operations;   ///< one behind the other
  std::map<std::uint32_t, TraceStream> streams;  ///< by CUPTI's number of the stream
};

/// Work on a stream, in a trace's terms.
struct GpuSlice {
  TraceStream stream;
  IssuedOperation operation;
  Nanos start, end;
};

/// The GPU's work on a clock that counts from `zero` of the records': one slice for each operation on a stream, from
/// the begin of its first kernel, copy or fill to the end of its last. What no operation issued is a slice of its own
/// under its KernelName, of no phase, and a stream that is not named is called "gpu stream N". Work that ended
/// before `zero` is left out.
std::vector<GpuSlice> SlicesOf(const GpuRecords& records, const GpuNames& names, Nanos zero);

}  // namespace tidemark
