// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "profiler/capture/gpu_capture.h"
#include "profiler/capture/outside_view.h"
#include "profiler/comm/communicator.h"
#include "profiler/device/device.h"

namespace tidemark {

/// What a rank runs on, and who measures there.
struct OpenedDevice {
  std::unique_ptr<GpuCapture> capture;  ///< of a GPU, from before its context; nothing: there is none
  std::unique_ptr<Device> device;
  std::unique_ptr<World> world;  ///< all ranks on their devices; nothing: those of the host will do
  MakeOutsideView watch;
};

/// `name`: "cuda" for GPUs, else this machine's processors. Each rank of a machine takes the next of its GPUs; where
/// there are more ranks they share them. All ranks of `boot` call it.
Result<OpenedDevice> OpenDevice(const std::string& name, World& boot);

/// The name for GPUs.
inline constexpr const char* kCuda = "cuda";

}  // namespace tidemark
