// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <utility>

#include "profiler/device/probe.h"

namespace tidemark {

DeviceProbe ProbeDevices() {
  DeviceProbe probe;
  RuntimeAnswers answers;
  // Both versions are known without a driver; where a call fails its version stays 0, which says the same.
  (void)cudaRuntimeGetVersion(&probe.runtime_version);
  (void)cudaDriverGetVersion(&answers.driver_version);
  answers.count_error = cudaGetDeviceCount(&answers.count);

  probe.driver_version = answers.driver_version;
  probe.reason = WhyNoDevice(answers);
  for (int index = 0; probe.reason.empty() && index < answers.count; ++index) {
    cudaDeviceProp properties;
    if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess) {
      probe.devices.clear();
      probe.reason = "the CUDA runtime cannot describe GPU " + std::to_string(index) + ": " + cudaGetErrorString(error);
      break;
    }
    probe.devices.push_back({properties.name, Bytes(static_cast<std::int64_t>(properties.totalGlobalMem)),
                             properties.major, properties.minor});
  }
  return probe;
}

}  // namespace tidemark
