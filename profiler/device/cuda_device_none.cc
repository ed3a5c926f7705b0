// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/cuda_device.h"
#include "profiler/device/gpu_driver.h"

namespace tidemark {

Result<std::unique_ptr<GpuDevice>> OpenCudaDevice(int gpu) { return GpuDriver::Open(gpu).error(); }

}  // namespace tidemark
