// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "base/quantity.h"

namespace tidemark {

/// A GPU as its driver describes it.
struct ProbedDevice {
  std::string name;
  Bytes memory;
  int compute_major = 0;
  int compute_minor = 0;
};

/// Which GPUs this process can use. CUDA versions are written as CUDA does: 13000 is 13.0.
struct DeviceProbe {
  int runtime_version = 0;  ///< of the CUDA runtime in this program; 0: built without one
  int driver_version = 0;   ///< newest CUDA that the installed driver serves; 0: no driver
  std::vector<ProbedDevice> devices;
  std::string reason;  ///< why there are no devices, in one sentence; empty where there are
};

/// Asks the CUDA runtime. Creates no context on any GPU, so it takes no GPU memory.
DeviceProbe ProbeDevices();

/// What the CUDA runtime answered, in its own numbers.
struct RuntimeAnswers {
  int driver_version = 0;  ///< cudaDriverGetVersion
  int count_error = 0;     ///< status of cudaGetDeviceCount
  int count = 0;           ///< and its count
};

/// Why these answers mean that no GPU can be used; empty if one can.
std::string WhyNoDevice(const RuntimeAnswers& answers);

}  // namespace tidemark
