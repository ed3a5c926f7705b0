// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/gpu_use_cuda.h"

#include <fmt/format.h>

#include <string_view>

#include "profiler/device/probe.h"

namespace tidemark {
namespace {

Error CannotUse(int gpu, std::string_view why) {
  return {ErrorCode::machine_cannot, "", fmt::format("GPU {} cannot be used: {}", gpu, why),
          "tidemark doctor says which GPUs there are"};
}

Status Copied(cudaError_t error) {
  if (error == cudaSuccess) {
    return Done{};
  }
  return Error{ErrorCode::machine_cannot, "",
               fmt::format("a copy between GPU and host failed: CUDA answers {}", cudaGetErrorName(error)),
               "what the GPU did before it may be at fault: CUDA_LAUNCH_BLOCKING=1 shows which"};
}

}  // namespace

Status UseGpu(int gpu) {
  const DeviceProbe probe = ProbeDevices();
  if (!probe.reason.empty()) {
    return CannotUse(gpu, probe.reason);
  }
  if (const cudaError_t error = cudaSetDevice(gpu); error != cudaSuccess) {
    return CannotUse(gpu, cudaGetErrorString(error));
  }
  return Done{};
}

Status CopyAndWait(void* to, const void* from, Bytes bytes, cudaMemcpyKind kind, void* stream) {
  auto* on = static_cast<cudaStream_t>(stream);
  TIDEMARK_TRY(Copied(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes.count()), kind, on)));
  return Copied(cudaStreamSynchronize(on));
}

}  // namespace tidemark
