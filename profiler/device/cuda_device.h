// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "base/result.h"
#include "profiler/device/gpu_device.h"

namespace tidemark {

/// One GPU, by its number among those that this process sees: each stream of a program is a CUDA stream, each mark an
/// event. An error of CUDA ends the process with CUDA's own words. Fails with machine_cannot where there is no such
/// GPU.
Result<std::unique_ptr<GpuDevice>> OpenCudaDevice(int gpu);

}  // namespace tidemark
