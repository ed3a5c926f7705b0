// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/gpu_capture.h"

namespace tidemark {

namespace {

Error NoCuda() {
  return {ErrorCode::machine_cannot, "", "this program was built without CUDA, so it records no GPU",
          "build it where there is a CUDA 13 toolkit"};
}

}  // namespace

Result<std::unique_ptr<GpuCapture>> GpuCapture::Begin(const Options&) { return NoCuda(); }

Result<std::string> CuptiVersion() { return NoCuda(); }

}  // namespace tidemark
