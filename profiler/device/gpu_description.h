// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/quantity.h"
#include "models/machine/machine.h"

namespace tidemark {

/// One GPU as its driver describes it at an instant. What cannot be found out is 0, empty or nothing.
struct GpuDescription {
  std::string name;
  std::string driver;  ///< version: "580.65.06"
  std::string cuda;    ///< of the CUDA runtime in this program: "13.0"
  std::int64_t processors = 0;
  Bytes memory;
  Clocks clocks;
  std::optional<Bytes> used;  ///< of its memory now, by whoever
};

/// The GPU of this number among those that this process sees, by the CUDA runtime and NVML. Makes no context, so that
/// it takes no memory of the GPU.
GpuDescription DescribeGpu(int gpu);

}  // namespace tidemark
