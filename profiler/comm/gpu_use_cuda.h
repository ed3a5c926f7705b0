// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime_api.h>

#include "base/quantity.h"
#include "base/result.h"

namespace tidemark {

/// Makes the GPU current in the calling thread. Fails with machine_cannot.
Status UseGpu(int gpu);

/// A copy on a stream, for which the host waits.
Status CopyAndWait(void* to, const void* from, Bytes bytes, cudaMemcpyKind kind, void* stream);

}  // namespace tidemark
