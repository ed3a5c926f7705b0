// SPDX-License-Identifier: Apache-2.0
// What is not known of a GPU's memory without one: what its context takes, what streams, the library of products and
// kernels take when they are first used, what CUPTI's memory records say of memory that is mapped page by page, what a
// communicator of one rank takes, and what recording costs. Prints one JSON object.
//
//   memory_experiment [none|records|sources]     what is recorded meanwhile (default: sources)

#include <cuda_runtime_api.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/shared_library.h"
#include "kernels/blas.h"
#include "kernels/linear_cuda.h"
#include "kernels/pointwise_cuda.h"
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
  const SharedLibrary library = SharedLibrary::OfCuda("libnccl.so.2", CUDART_VERSION / 1000);
  int (*init)(void**, int, const int*) = nullptr;
  const Bytes before = driver.totals().free;
  void* communicator = nullptr;
  const int gpu = 0;
  if (!library.is_there() || !library.Find("ncclCommInitAll", init) || init(&communicator, 1, &gpu) != 0) {
    return std::nullopt;
  }
  return (before - driver.totals().free).count();
}

/// What the driver takes at the first use of what a step uses, one behind the other.
class FirstUses {
 public:
  explicit FirstUses(const GpuDriver& driver) : driver_(driver) {
    Take("8 streams", [&] {
      for (cudaStream_t& stream : streams_) {
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
      }
    });
    std::unique_ptr<kernels::cuda::Blas> blas;
    Take("cuBLASLt", [&] {
      if (auto opened = kernels::cuda::OpenCublasLt()) {
        blas = std::move(*opened);
      }
    });
    void* room = nullptr;
    Take("workspace of a stream", [&] { cudaMalloc(&room, kernels::Queue::kWorkspaceBytes); });
    const kernels::Queue queue{.stream = streams_[0],
                               .blas = blas.get(),
                               .workspace = room,
                               .workspace_bytes = room == nullptr ? 0 : kernels::Queue::kWorkspaceBytes};
    kernels::Tensor all{{DType::bf16, 2 * kSide * kSide}, nullptr};
    Take("16 MiB", [&] { cudaMalloc(&all.data, 2 * 2 * kSide * kSide); });
    if (all.data == nullptr) {
      return;
    }
    const kernels::Tensor operand = kernels::Slice(all, 0, kSide * kSide),
                          product = kernels::Slice(all, kSide * kSide, kSide * kSide);
    Take("a kernel of ours", [&] { kernels::cuda::Fill(0.5, all, queue); });
    Take("another", [&] { kernels::cuda::Scale(0.5, all, queue); });
    const kernels::Linear square{.rows = kSide, .in = kSide, .out = kSide};
    for (const char* const name : {"a product", "the same product"}) {
      Take(name, [&] { kernels::cuda::LinearForward(square, operand, operand, {}, std::span(&product, 1), queue); });
    }
    cudaFree(all.data);
    cudaFree(room);
  }
  ordered_json Take() && { return std::move(all_); }

 private:
  static constexpr std::int64_t kSide = 2048;

  template <class Use>
  void Take(const char* name, const Use& use) {
    const Bytes before = driver_.totals().free;
    use();
    cudaDeviceSynchronize();
    all_.push_back({{"use", name}, {"taken_bytes", (before - driver_.totals().free).count()}});
  }

  const GpuDriver& driver_;
  std::array<cudaStream_t, 8> streams_{};
  ordered_json all_ = ordered_json::array();
};

Bytes BinariesOf(const GpuRecords& records) {
  Bytes sum;
  for (const GpuModuleRecord& module : records.modules) {
    sum += module.bytes;
  }
  return sum;
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
          {"modules", records.modules.size()},
          {"modules_binaries_bytes", BinariesOf(records).count()},
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
  ordered_json first_uses = FirstUses(**driver).Take();
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
                         {"first_uses", std::move(first_uses)},
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
