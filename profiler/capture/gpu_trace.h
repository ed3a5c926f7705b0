// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>

#include "profiler/capture/gpu_records.h"
#include "traces/trace.h"

namespace tidemark {

/// What the capture calls by number.
struct GpuNames {
  std::span<const std::string> operations;       ///< by the number given to GpuCapture::Issuing
  std::map<std::uint32_t, TraceStream> streams;  ///< by CUPTI's number of the stream
};

/// Puts the GPU's work into a trace whose times count from `zero` of the records' clock: one slice for each operation,
/// on its stream, from the begin of its first kernel, copy or fill to the end of its last. What no operation issued is
/// a slice of its own under its kernel's name, and a stream that is not named is called "gpu stream N". Work that ended
/// before `zero` is left out.
void AddGpuWork(const GpuRecords& records, const GpuNames& names, Nanos zero, Trace& trace);

}  // namespace tidemark
