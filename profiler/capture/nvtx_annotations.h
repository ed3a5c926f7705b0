// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "profiler/capture/annotations.h"

namespace tidemark {

/// Through NVTX 3, in the domain "tidemark": ranges by push and pop with registered names, a category for each phase
/// and one for what is outside of them, and the microbatch as the payload; heaps and regions by its memory extension.
/// The tool is the library that NVTX_INJECTION64_PATH names when the process first uses NVTX, as Nsight Systems and
/// compute-sanitizer set it. Without a tool a call is a test of a pointer. nullptr in a build without CUDA.
std::unique_ptr<Annotations> MakeNvtxAnnotations();

}  // namespace tidemark
