// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/gpu_description.h"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <array>

#include "profiler/device/gpu_management.h"

namespace tidemark {
namespace {

/// "13.0" of 13000, as CUDA writes versions.
std::string VersionText(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

std::int64_t MegahertzOf(cudaDeviceAttr kilohertz, int gpu) {
  int rate = 0;
  return cudaDeviceGetAttribute(&rate, kilohertz, gpu) == cudaSuccess ? rate / 1000 : 0;
}

}  // namespace

GpuDescription DescribeGpu(int gpu) {
  GpuDescription found;
  int runtime = 0;
  if (cudaRuntimeGetVersion(&runtime) == cudaSuccess) {
    found.cuda = VersionText(runtime);
  }
  cudaDeviceProp properties;
  if (cudaGetDeviceProperties(&properties, gpu) != cudaSuccess) {
    return found;
  }
  found.name = properties.name;
  found.processors = properties.multiProcessorCount;
  found.memory = Bytes(static_cast<std::int64_t>(properties.totalGlobalMem));
  found.clocks.sm_max_mhz = MegahertzOf(cudaDevAttrClockRate, gpu);
  found.clocks.memory_max_mhz = MegahertzOf(cudaDevAttrMemoryClockRate, gpu);
  std::array<char, 32> bus{};
  if (cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), gpu) == cudaSuccess) {
    if (const std::optional<GpuManagement> management = GpuManagement::Open(bus.data())) {
      found.driver = management->driver();
      found.used = management->used();
      management->Tell(found.clocks);
    }
  }
  return found;
}

}  // namespace tidemark
