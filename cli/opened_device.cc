// SPDX-License-Identifier: Apache-2.0
#include "cli/opened_device.h"

#include <cstdint>
#include <functional>
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

/// What is measured of a GPU begins before its context, which comes before NCCL's.
Result<OpenedDevice> OpenGpu(Recording recording, const std::function<Result<std::unique_ptr<World>>(int gpu)>& meet) {
  TIDEMARK_ASSIGN(const int gpu, GpuOfThisRank());
  OpenedDevice opened;
  GpuWatch watch;
  if (auto capture = GpuCapture::Begin({.work = recording == Recording::operations, .allocation_sources = true})) {
    opened.capture = std::move(*capture);
    watch.capture = opened.capture.get();
  } else {  // a run without it is measured less well, and says so
    watch.without_capture = capture.error().message;
  }
  TIDEMARK_ASSIGN(std::unique_ptr<GpuDevice> device, OpenCudaDevice(gpu));
  TIDEMARK_ASSIGN(opened.world, meet(gpu));
  watch.ranks_on_gpu = opened.world->ranks_on_gpu();
  watch.staging = [world = opened.world.get()] { return world->staging(); };
  opened.watch = WatchGpu(*device, watch);
  opened.device = std::move(device);
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

Result<OpenedDevice> OpenDevice(const std::string& name, World& boot, Recording recording) {
  return name == kCuda ? OpenGpu(recording, [&boot](int gpu) { return OpenNcclWorld(boot, {.gpu = gpu}); })
                       : Result<OpenedDevice>(OpenProcessor());
}

Result<OpenedDevice> OpenDeviceOfTorchrun(Recording recording) {
  return OpenGpu(recording, [](int gpu) { return OpenNcclWorldFromEnvironment(FindLauncher(), {.gpu = gpu}); });
}

}  // namespace tidemark
