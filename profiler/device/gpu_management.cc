// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/gpu_management.h"

#include <array>
#include <cstddef>

#include "base/shared_library.h"

namespace tidemark {
namespace {

constexpr int kInsufficientSize = 7;  // NVML_ERROR_INSUFFICIENT_SIZE: the count is told, and there is no room for more
constexpr std::size_t kVersionLength = 80;  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE

}  // namespace

std::optional<GpuManagement> GpuManagement::Open(const std::string& bus_id) {
  const SharedLibrary library = SharedLibrary::OfSystem("libnvidia-ml.so.1");
  ManagementCalls calls;
  const bool whole = library.is_there() && library.Find("nvmlInit_v2", calls.init) &&
                     library.Find("nvmlDeviceGetHandleByPciBusId_v2", calls.find) &&
                     library.Find("nvmlDeviceGetMemoryInfo", calls.memory) &&
                     library.Find("nvmlDeviceGetComputeRunningProcesses_v3", calls.processes) &&
                     library.Find("nvmlSystemGetDriverVersion", calls.driver_version) &&
                     library.Find("nvmlDeviceGetClockInfo", calls.clock) &&
                     library.Find("nvmlDeviceGetMaxClockInfo", calls.max_clock);
  return whole ? Over(calls, bus_id) : std::nullopt;
}

std::optional<GpuManagement> GpuManagement::Over(const ManagementCalls& calls, const std::string& bus_id) {
  void* gpu = nullptr;
  if (calls.init() != 0 || calls.find(bus_id.c_str(), &gpu) != 0) {
    return std::nullopt;
  }
  return GpuManagement(calls, gpu);
}

std::optional<Bytes> GpuManagement::used() const {
  ManagementCalls::Memory memory;
  const bool told = calls_.memory(gpu_, &memory) == 0;
  return told ? std::optional(Bytes(static_cast<std::int64_t>(memory.used))) : std::nullopt;
}

/// Asked with room for none, it says how many there are.
std::optional<std::int64_t> GpuManagement::processes() const {
  unsigned count = 0;
  const int status = calls_.processes(gpu_, &count, nullptr);
  return status == 0 || status == kInsufficientSize ? std::optional<std::int64_t>(count) : std::nullopt;
}

std::string GpuManagement::driver() const {
  std::array<char, kVersionLength> version{};
  const bool told = calls_.driver_version(version.data(), static_cast<unsigned>(version.size())) == 0;
  return told ? std::string(version.data()) : std::string();
}

void GpuManagement::Tell(Clocks& clocks) const {
  using Clock = ManagementCalls::Clock;
  const auto ask = [this](auto call, Clock which, std::int64_t& megahertz) {
    if (unsigned told = 0; call(gpu_, which, &told) == 0) {
      megahertz = told;
    }
  };
  ask(calls_.clock, Clock::sm, clocks.sm_mhz);
  ask(calls_.max_clock, Clock::sm, clocks.sm_max_mhz);
  ask(calls_.clock, Clock::memory, clocks.memory_mhz);
  ask(calls_.max_clock, Clock::memory, clocks.memory_max_mhz);
}

}  // namespace tidemark
