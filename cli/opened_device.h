// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"
#include "profiler/capture/gpu_capture.h"
#include "profiler/capture/outside_view.h"
#include "profiler/comm/communicator.h"
#include "profiler/device/device.h"
#include "profiler/device/gpu_device.h"

namespace tidemark {

/// What a rank runs on, and who measures there.
struct OpenedDevice {
  std::unique_ptr<GpuCapture> capture;  ///< of a GPU, from before its context; nothing: there is none
  std::unique_ptr<Device> device;
  std::unique_ptr<World> world;  ///< all ranks on their devices; nothing: those of the host will do
  MakeOutsideView watch;
};

/// Which GPU is this rank's: each rank of a machine takes the next one, and where there are more ranks they share them.
/// Fails with machine_cannot where there is none.
Result<int> GpuOfThisRank();

/// A rank's GPU, and all ranks on theirs.
struct Gpus {
  std::unique_ptr<GpuDevice> device;
  std::unique_ptr<World> world;
};
/// All ranks of `boot`, which outlives what comes back, call it.
Result<Gpus> OpenGpus(World& boot, int gpu);

/// What is recorded of a GPU.
enum class Recording : std::uint8_t {
  operations,  ///< memory, and when each operation was done
  memory,      ///< memory alone, so that steps take the time of their work
};

/// `name`: "cuda" for GPUs, else this machine's processors. All ranks of `boot`, which outlives what comes back, call
/// it.
Result<OpenedDevice> OpenDevice(const std::string& name, World& boot, Recording recording);
/// The GPU of a rank that torchrun has started, and the world of all of them, which only NCCL brings together.
Result<OpenedDevice> OpenDeviceOfTorchrun(Recording recording);

/// The name for GPUs.
inline constexpr const char* kCuda = "cuda";

}  // namespace tidemark
