// SPDX-License-Identifier: Apache-2.0
// What is not known of a GPU's memory without one: what its context takes, what CUPTI's memory records say of memory
// that is mapped page by page, what a communicator of one rank takes, and what recording costs. Prints one JSON object.
//
//   memory_experiment [none|records|sources]     what is recorded meanwhile (default: sources)

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "profiler/capture/gpu_capture.h"
#include "profiler/capture/gpu_memory_use.h"
#include "profiler/device/gpu_driver.h"
#include "profiler/device/gpu_management.h"
#include "profiler/device/gpu_memory.h"
#include "profiler/device/probe.h"

namespace tidemark {
namespace {

using nlohmann::ordered_json;

constexpr Bytes kMiB(1 << 20);

/// What is in use of the first GPU, which needs no context to be asked; empty without NVIDIA's management library.
std::optional<std::int64_t> Used(const std::optional<GpuManagement>& management) {
  const std::optional<Bytes> used = management ? management->used() : std::nullopt;
  return used ? std::optional(used->count()) : std::nullopt;
}

std::optional<GpuManagement> ManagementOfFirst() {
  std::array<char, 32> bus_id{};
  return cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), 0) == cudaSuccess
             ? GpuManagement::Open(bus_id.data())
             : std::nullopt;
}

ordered_json Number(const std::optional<std::int64_t>& value) { return value ? ordered_json(*value) : ordered_json(); }

/// Nanoseconds of one allocation and its free, the mean of many.
double NanosOfAPair(GpuDriver& driver) {
  constexpr int kPairs = 2000;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < kPairs; ++i) {
    driver.Free(*driver.Allocate(kMiB));
  }
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / kPairs;
}

/// Bytes that NCCL takes for a communicator of this GPU alone; empty where it cannot be had.
std::optional<std::int64_t> NcclOfOneRank(const GpuDriver& driver) {
  void* library = dlopen("libnccl.so.2", RTLD_NOW);
  if (library == nullptr) {
    return std::nullopt;
  }
  const auto init = reinterpret_cast<int (*)(void**, int, const int*)>(dlsym(library, "ncclCommInitAll"));
  const Bytes before = driver.totals().free;
  void* communicator = nullptr;
  const int gpu = 0;
  if (init == nullptr || init(&communicator, 1, &gpu) != 0) {
    return std::nullopt;
  }
  return (before - driver.totals().free).count();
}

ordered_json Describe(const GpuRecords& records, const GpuMemory& memory) {
  const GpuMemoryUse use = FollowGpuMemory(records, [&](std::uint64_t address) { return memory.Has(address); });
  ordered_json owners = ordered_json::array();
  for (const GpuOwner& owner : use.owners) {
    owners.push_back(
        {{"owner", owner.name}, {"at_peak_bytes", owner.at_peak.count()}, {"peak_bytes", owner.peak.count()}});
  }
  ordered_json sources = ordered_json::object();
  for (const GpuMemoryRecord& record : records.memory) {
    if (record.alloc) {
      ordered_json& bytes = sources[record.source.empty() ? "(not told)" : record.source];
      bytes = (bytes.is_null() ? 0 : bytes.get<std::int64_t>()) + record.bytes.count();
    }
  }
  return {{"memory_records", records.memory.size()},
          {"virtual_memory_calls", records.virtual_memory.size()},
          {"memory_records_of_mapped_memory", use.recorded_twice},
          {"dropped", records.dropped},
          {"without_times", records.without_times},
          {"owners", owners},
          {"allocated_bytes_by_source", sources}};
}

int Run(std::string_view mode) {
  const std::optional<GpuManagement> management = ManagementOfFirst();
  const auto before = Used(management);
  std::unique_ptr<GpuCapture> capture;
  if (mode != "none") {
    auto begun = GpuCapture::Begin({.work = false, .allocation_sources = mode == "sources"});
    if (!begun) {
      std::fprintf(stderr, "error: %s\n", begun.error().Text().c_str());
      return static_cast<int>(begun.error().code);
    }
    capture = std::move(*begun);
  }
  const auto driver = GpuDriver::Open(0);
  if (!driver) {
    std::fprintf(stderr, "error: %s\n", driver.error().Text().c_str());
    return static_cast<int>(driver.error().code);
  }
  const auto with_context = Used(management);
  const double pair = NanosOfAPair(**driver);
  GpuMemory memory(**driver, (*driver)->totals().total);
  const auto piece = memory.Take(64 * kMiB);
  const auto range = memory.Reserve(2 * kMiB);
  const bool mapped = range && memory.Map(*range, 20 * kMiB);
  const auto nccl = NcclOfOneRank(**driver);
  cudaDeviceSynchronize();

  const DeviceProbe probe = ProbeDevices();
  char date[16] = {};
  const std::time_t now = std::time(nullptr);
  std::strftime(date, sizeof(date), "%Y-%m-%d", std::gmtime(&now));
  ordered_json result = {{"gpu", probe.devices.front().name},
                         {"driver", probe.driver_version},
                         {"cuda", probe.runtime_version},
                         {"date", date},
                         {"recorded", mode},
                         {"reduced", capture ? capture->reduced() : ""},
                         {"used_before_bytes", Number(before)},
                         {"used_with_context_bytes", Number(with_context)},
                         {"nccl_of_one_rank_bytes", Number(nccl)},
                         {"nanoseconds_of_allocation_and_free", pair},
                         {"taken_bytes", piece ? (64 * kMiB).count() : 0},
                         {"mapped_bytes", mapped ? (20 * kMiB).count() : 0}};
  if (capture) {
    result["records"] = Describe(capture->TakeMemory(), memory);
  }
  std::printf("%s\n", result.dump(2).c_str());
  return 0;
}

}  // namespace
}  // namespace tidemark

int main(int argc, char** argv) {
  const std::string_view mode = argc > 1 ? argv[1] : "sources";
  if (mode != "none" && mode != "records" && mode != "sources") {
    std::fprintf(stderr, "error: expected none, records or sources, found %s\n", argv[1]);
    return 2;
  }
  return tidemark::Run(mode);
}
