// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/nvml.h"

#include <array>

#include "base/shared_library.h"

namespace tidemark {
namespace {

constexpr int kSuccess = 0;

/// A clock that the GPU does not tell stays as it is.
void Ask(int (*call)(void*, NvmlClock, unsigned*), void* device, NvmlClock which, std::int64_t& megahertz) {
  if (unsigned found = 0; call(device, which, &found) == kSuccess) {
    megahertz = found;
  }
}

void AskDevice(const NvmlCalls& nvml, void* device, GpuDescription& of) {
  Ask(nvml.clock, device, NvmlClock::sm, of.clocks.sm_mhz);
  Ask(nvml.max_clock, device, NvmlClock::sm, of.clocks.sm_max_mhz);
  Ask(nvml.clock, device, NvmlClock::memory, of.clocks.memory_mhz);
  Ask(nvml.max_clock, device, NvmlClock::memory, of.clocks.memory_max_mhz);
  if (NvmlMemory memory; nvml.memory(device, &memory) == kSuccess) {
    of.used = Bytes(static_cast<std::int64_t>(memory.used));
  }
}

}  // namespace

std::optional<NvmlCalls> LoadNvml() {
  const SharedLibrary library = SharedLibrary::OfSystem("libnvidia-ml.so.1");
  NvmlCalls calls;
  const bool found = library.is_there() && library.Find("nvmlInit_v2", calls.init) &&
                     library.Find("nvmlShutdown", calls.shutdown) &&
                     library.Find("nvmlSystemGetDriverVersion", calls.driver_version) &&
                     library.Find("nvmlDeviceGetHandleByPciBusId_v2", calls.find) &&
                     library.Find("nvmlDeviceGetClockInfo", calls.clock) &&
                     library.Find("nvmlDeviceGetMaxClockInfo", calls.max_clock) &&
                     library.Find("nvmlDeviceGetMemoryInfo", calls.memory);
  return found ? std::optional(calls) : std::nullopt;
}

void AskNvml(const NvmlCalls& nvml, const std::string& pci_bus, GpuDescription& of) {
  if (nvml.init() != kSuccess) {
    return;
  }
  std::array<char, 80> version{};  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
  if (nvml.driver_version(version.data(), static_cast<unsigned>(version.size())) == kSuccess) {
    of.driver = version.data();
  }
  if (void* device = nullptr; nvml.find(pci_bus.c_str(), &device) == kSuccess) {
    AskDevice(nvml, device, of);
  }
  nvml.shutdown();
}

}  // namespace tidemark
