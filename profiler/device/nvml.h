// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "profiler/device/gpu_description.h"

namespace tidemark {

// NVIDIA's management library, which comes with the driver. It tells a GPU's clocks and the memory that all processes
// together use, without a context. Its types and numbers stand here by its documentation
// (https://docs.nvidia.com/deploy/nvml-api/), since toolkits come without its header; every result is an nvmlReturn_t,
// of which 0 is success.

struct NvmlMemory {
  std::uint64_t total = 0, free = 0, used = 0;  ///< nvmlMemory_t, bytes
};
enum class NvmlClock : int { sm = 1, memory = 2 };  ///< nvmlClockType_t

struct NvmlCalls {
  int (*init)() = nullptr;      ///< nvmlInit_v2
  int (*shutdown)() = nullptr;  ///< nvmlShutdown
  int (*driver_version)(char* text, unsigned length) = nullptr;
  int (*find)(const char* pci_bus, void** device) = nullptr;  ///< nvmlDeviceGetHandleByPciBusId_v2
  int (*clock)(void* device, NvmlClock, unsigned* megahertz) = nullptr;
  int (*max_clock)(void* device, NvmlClock, unsigned* megahertz) = nullptr;
  int (*memory)(void* device, NvmlMemory*) = nullptr;
};

/// Looked for when this is called; nothing where there is no driver.
std::optional<NvmlCalls> LoadNvml();

/// Adds what it knows of the GPU on this PCI bus, and leaves the rest as it is.
void AskNvml(const NvmlCalls& nvml, const std::string& pci_bus, GpuDescription& of);

}  // namespace tidemark
