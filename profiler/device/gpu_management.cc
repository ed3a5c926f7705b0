// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/gpu_management.h"

#include "base/shared_library.h"

namespace tidemark {
namespace {

constexpr int kInsufficientSize = 7;  // NVML_ERROR_INSUFFICIENT_SIZE: the count is told, and there is no room for more

}  // namespace

std::optional<GpuManagement> GpuManagement::Open(const std::string& bus_id) {
  const SharedLibrary library = SharedLibrary::OfSystem("libnvidia-ml.so.1");
  ManagementCalls calls;
  const bool whole = library.is_there() && library.Find("nvmlInit_v2", calls.init) &&
                     library.Find("nvmlDeviceGetHandleByPciBusId_v2", calls.find) &&
                     library.Find("nvmlDeviceGetMemoryInfo", calls.memory) &&
                     library.Find("nvmlDeviceGetComputeRunningProcesses_v3", calls.processes);
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

}  // namespace tidemark
