// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cupti.h>

#include <cstddef>
#include <cstdint>

#include "profiler/capture/gpu_records.h"

namespace tidemark {

// CUPTI fills records in the newest layout that the library knows, and keeps their kinds: the struct to read one as
// follows from the header that this is compiled with. All of that is here.
#if CUPTI_API_VERSION >= 130000
using CuptiMemory = CUpti_ActivityMemory4;
using CuptiKernel = CUpti_ActivityKernel10;
using CuptiCopy = CUpti_ActivityMemcpy6;
using CuptiFill = CUpti_ActivityMemset4;
using CuptiPool = CUpti_ActivityMemoryPool3;
using CuptiWait = CUpti_ActivitySynchronization2;
using CuptiOverhead = CUpti_ActivityOverhead3;
using CuptiOperation = CUpti_ActivityExternalCorrelation;
static_assert(sizeof(CuptiMemory) == 128 && sizeof(CuptiKernel) == 216 && sizeof(CuptiOperation) == 24);
static_assert(sizeof(CuptiPool) == 80 && sizeof(CuptiWait) == 56);
#else
#error "records are read with the layouts of CUPTI 13: build with CUDA 13 or later, or with TIDEMARK_CUDA=OFF"
#endif

/// Reads the records of one of CUPTI's buffers, `valid` bytes of it, behind those that are there. `next` is
/// cuptiActivityGetNextRecord.
void AppendRecords(std::uint8_t* buffer, std::size_t valid, decltype(&cuptiActivityGetNextRecord) next,
                   GpuRecords& records);

}  // namespace tidemark
