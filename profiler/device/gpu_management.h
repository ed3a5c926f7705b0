// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "base/quantity.h"
#include "models/machine/machine.h"

namespace tidemark {

/// What of NVIDIA's management library (NVML) is called, by NVML's own names and numbers (its reference, "Device
/// Queries"): a status is 0 where all went well.
struct ManagementCalls {
  /// nvmlMemory_t; `used` contains what the driver keeps for itself.
  struct Memory {
    unsigned long long total = 0, free = 0, used = 0;
  };
  int (*init)() = nullptr;                                            ///< nvmlInit_v2
  int (*find)(const char* bus_id, void** gpu) = nullptr;              ///< nvmlDeviceGetHandleByPciBusId_v2
  int (*memory)(void* gpu, Memory* memory) = nullptr;                 ///< nvmlDeviceGetMemoryInfo
  int (*processes)(void* gpu, unsigned* count, void*) = nullptr;      ///< nvmlDeviceGetComputeRunningProcesses_v3
  int (*driver_version)(char* text, unsigned length) = nullptr;       ///< nvmlSystemGetDriverVersion
  enum class Clock : int { sm = 1, memory = 2 };                      ///< nvmlClockType_t
  int (*clock)(void* gpu, Clock, unsigned* megahertz) = nullptr;      ///< nvmlDeviceGetClockInfo
  int (*max_clock)(void* gpu, Clock, unsigned* megahertz) = nullptr;  ///< nvmlDeviceGetMaxClockInfo
};

/// One GPU as its management library sees it, which comes with the driver and needs no context there.
class GpuManagement {
 public:
  /// By its place on the bus ("0000:65:00.0"), as this machine's NVML knows it; nothing where there is no NVML, or it
  /// does not know the GPU.
  static std::optional<GpuManagement> Open(const std::string& bus_id);
  static std::optional<GpuManagement> Over(const ManagementCalls& calls, const std::string& bus_id);

  /// Of the whole GPU, whoever has it. Only differences mean something beside what a driver counts for a process.
  std::optional<Bytes> used() const;
  /// How many processes have a context there.
  std::optional<std::int64_t> processes() const;
  /// "580.65.06"; empty where it is not told.
  std::string driver() const;
  /// Puts in what it is told of clocks, and leaves the rest as it is.
  void Tell(Clocks& clocks) const;

 private:
  GpuManagement(const ManagementCalls& calls, void* gpu) : calls_(calls), gpu_(gpu) {}

  ManagementCalls calls_;
  void* gpu_;
};

}  // namespace tidemark
