// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/gpu_driver.h"

namespace tidemark {

Result<std::unique_ptr<GpuDriver>> GpuDriver::Open(int) {
  return Error{ErrorCode::machine_cannot, "", "this program was built without CUDA, so it runs on no GPU",
               "build it where there is a CUDA 13 toolkit"};
}

}  // namespace tidemark
