// SPDX-License-Identifier: Apache-2.0
#include "cli/opened_device.h"

#include <cstdint>
#include <iterator>
#include <utility>

#include "profiler/capture/gpu_view.h"
#include "profiler/capture/process_view.h"
#include "profiler/comm/launcher.h"
#include "profiler/comm/nccl.h"
#include "profiler/device/cuda_device.h"
#include "profiler/device/gpu_device.h"
#include "profiler/device/host_device.h"
#include "profiler/device/probe.h"

namespace tidemark {
namespace {

OpenedDevice OpenProcessor() {
  OpenedDevice opened;
  auto processor = std::make_unique<HostDevice>();
  opened.watch = WatchProcess(*processor);
  opened.device = std::move(processor);
  return opened;
}

Result<OpenedDevice> OpenGpu(World& boot) {
  TIDEMARK_ASSIGN(const int gpu, GpuOfThisRank());
  OpenedDevice opened;
  GpuWatch watch;
  if (auto capture = GpuCapture::Begin({.allocation_sources = true})) {
    opened.capture = std::move(*capture);
    watch.capture = opened.capture.get();
  } else {  // a run without it is measured less well, and says so
    watch.without_capture = capture.error().message;
  }
  TIDEMARK_ASSIGN(Gpus gpus, OpenGpus(boot, gpu));
  watch.ranks_on_gpu = gpus.world->ranks_on_gpu();
  opened.watch = WatchGpu(*gpus.device, watch);
  opened.device = std::move(gpus.device);
  opened.world = std::move(gpus.world);
  return opened;
}

}  // namespace

Result<int> GpuOfThisRank() {
  const std::int64_t count = std::ssize(ProbeDevices().devices);
  if (count == 0) {
    return Error{ErrorCode::machine_cannot, "", "this rank's machine has no GPU", "tidemark doctor says why"};
  }
  return static_cast<int>(FindLauncher().local_rank % count);
}

Result<Gpus> OpenGpus(World& boot, int gpu) {
  Gpus gpus;
  TIDEMARK_ASSIGN(gpus.device, OpenCudaDevice(gpu));
  TIDEMARK_ASSIGN(gpus.world, OpenNcclWorld(boot, {.gpu = gpu}));
  return gpus;
}

Result<OpenedDevice> OpenDevice(const std::string& name, World& boot) {
  return name == kCuda ? OpenGpu(boot) : Result<OpenedDevice>(OpenProcessor());
}

}  // namespace tidemark
