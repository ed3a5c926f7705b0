// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/gpu_driver.h"

#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <string>

#include "base/check.h"
#include "base/text.h"
#include "profiler/device/probe.h"

namespace tidemark {
namespace {

constexpr unsigned kVersion = 12000;  // of the calls: what a driver for CUDA 12 or later has

/// The driver's calls. It is never linked: where there is none a program that was would not start.
struct Calls {
  decltype(&cuMemGetAllocationGranularity) granularity = nullptr;
  decltype(&cuMemAddressReserve) reserve = nullptr;
  decltype(&cuMemAddressFree) free_addresses = nullptr;
  decltype(&cuMemCreate) make = nullptr;
  decltype(&cuMemRelease) release = nullptr;
  decltype(&cuMemMap) map = nullptr;
  decltype(&cuMemUnmap) unmap = nullptr;
  decltype(&cuMemSetAccess) set_access = nullptr;
  decltype(&cuMemPoolCreate) make_pool = nullptr;
  decltype(&cuMemPoolDestroy) drop_pool = nullptr;
  decltype(&cuMemPoolSetAttribute) set_pool = nullptr;
  decltype(&cuMemPoolGetAttribute) get_pool = nullptr;
  decltype(&cuMemPoolTrimTo) trim_pool = nullptr;
  decltype(&cuMemAllocFromPoolAsync) allocate_from_pool = nullptr;
  decltype(&cuMemFreeAsync) free_in_order = nullptr;
  decltype(&cuGetErrorName) error_name = nullptr;
};

Error CannotUse(int gpu, const std::string& why) {
  return {ErrorCode::machine_cannot, "", fmt::format("GPU {} cannot be used: {}", gpu, why),
          "tidemark doctor says which GPUs there are"};
}

template <class Call>
bool Find(const char* name, Call& call) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  const cudaError_t error = cudaGetDriverEntryPointByVersion(name, &found, kVersion, cudaEnableDefault, &result);
  call = reinterpret_cast<Call>(found);
  return error == cudaSuccess && result == cudaDriverEntryPointSuccess && call != nullptr;
}

bool FindAll(Calls& calls) {
  return Find("cuMemGetAllocationGranularity", calls.granularity) && Find("cuMemAddressReserve", calls.reserve) &&
         Find("cuMemAddressFree", calls.free_addresses) && Find("cuMemCreate", calls.make) &&
         Find("cuMemRelease", calls.release) && Find("cuMemMap", calls.map) && Find("cuMemUnmap", calls.unmap) &&
         Find("cuMemSetAccess", calls.set_access) && Find("cuMemPoolCreate", calls.make_pool) &&
         Find("cuMemPoolDestroy", calls.drop_pool) && Find("cuMemPoolSetAttribute", calls.set_pool) &&
         Find("cuMemPoolGetAttribute", calls.get_pool) && Find("cuMemPoolTrimTo", calls.trim_pool) &&
         Find("cuMemAllocFromPoolAsync", calls.allocate_from_pool) && Find("cuMemFreeAsync", calls.free_in_order) &&
         Find("cuGetErrorName", calls.error_name);
}

class CudaDriver final : public GpuDriver {
 public:
  CudaDriver(int gpu, const Calls& calls) : calls_(calls) {
    properties_.type = CU_MEM_ALLOCATION_TYPE_PINNED;
    properties_.location = {CU_MEM_LOCATION_TYPE_DEVICE, gpu};
    std::size_t granularity = 0;
    Expect(calls_.granularity(&granularity, &properties_, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    granularity_ = Bytes(static_cast<std::int64_t>(granularity));
  }

  std::optional<std::uint64_t> Allocate(Bytes bytes) override {
    void* address = nullptr;
    const cudaError_t result = cudaMalloc(&address, Size(bytes));
    if (result == cudaErrorMemoryAllocation) {
      (void)cudaGetLastError();  // the runtime tells it to whoever asks next, too
      return std::nullopt;
    }
    Expect(result);
    return reinterpret_cast<std::uint64_t>(address);
  }
  /// Work that still writes there is waited for, as PyTorch waits before it unmaps (CUDACachingAllocator.cpp,
  /// unmapHandles): the driver's calls do not say that they do.
  void Free(std::uint64_t address) override {
    FinishWork();
    Expect(cudaFree(reinterpret_cast<void*>(address)));  // NOLINT(performance-no-int-to-ptr): memory is in addresses
  }

  Bytes granularity() const override { return granularity_; }
  std::optional<std::uint64_t> ReserveAddresses(Bytes bytes) override {
    constexpr std::size_t kDefaultAlignment = 0;  // others must be powers of two, which pages of 20 MiB are not
    CUdeviceptr address = 0;
    const CUresult result = calls_.reserve(&address, Size(bytes), kDefaultAlignment, 0, 0);
    return IfThereIsRoom(result, address);
  }
  void FreeAddresses(std::uint64_t address, Bytes bytes) override {
    Expect(calls_.free_addresses(address, Size(bytes)));
  }
  std::optional<std::uint64_t> MakeMemory(Bytes bytes) override {
    CUmemGenericAllocationHandle handle = 0;
    const CUresult result = calls_.make(&handle, Size(bytes), &properties_, 0);
    return IfThereIsRoom(result, handle);
  }
  void ReleaseMemory(std::uint64_t handle) override { Expect(calls_.release(handle)); }
  void Map(std::uint64_t address, Bytes bytes, std::uint64_t handle) override {
    Expect(calls_.map(address, Size(bytes), 0, handle, 0));
  }
  void Allow(std::uint64_t address, Bytes bytes) override {
    const CUmemAccessDesc access{properties_.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    Expect(calls_.set_access(address, Size(bytes), &access, 1));
  }
  void Unmap(std::uint64_t address, Bytes bytes) override {
    FinishWork();
    Expect(calls_.unmap(address, Size(bytes)));
  }

  Result<std::uint64_t> MakePool(const PoolOptions& options) override {
    CUmemPoolProps properties{};
    properties.allocType = properties_.type;
    properties.location = properties_.location;
    properties.maxSize =
        options.largest ? Size(Bytes(RoundUp(options.largest->count(), granularity_.count()))) : 0;  // 0: its own limit
    CUmemoryPool pool = nullptr;
    const CUresult made = calls_.make_pool(&pool, &properties);
    if (made == CUDA_ERROR_NOT_SUPPORTED) {
      return Error{ErrorCode::machine_cannot, "", "this GPU's driver has no pools for cudaMallocAsync",
                   "take another allocator: allocator.kind=torch-caching"};
    }
    if (made == CUDA_ERROR_INVALID_VALUE && options.largest) {  // to drivers before CUDA 12.2 the size is no property
      return Error{
          ErrorCode::machine_cannot, "",
          fmt::format("this GPU's driver makes no pool for cudaMallocAsync of {} at most", Text(*options.largest)),
          "leave out --capacity, or take another allocator: allocator.kind=torch-caching"};
    }
    Expect(made);
    cuuint64_t threshold = Size(options.release_threshold);
    Expect(calls_.set_pool(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold));
    return reinterpret_cast<std::uint64_t>(pool);
  }
  void DropPool(std::uint64_t pool) override { Expect(calls_.drop_pool(PoolOf(pool))); }
  std::optional<std::uint64_t> AllocateFromPool(std::uint64_t pool, Bytes bytes, void* stream) override {
    CUdeviceptr address = 0;
    const CUresult result =
        calls_.allocate_from_pool(&address, Size(bytes), PoolOf(pool), static_cast<CUstream>(stream));
    return IfThereIsRoom(result, address);
  }
  void FreeInOrder(std::uint64_t address, void* stream) override {
    Expect(calls_.free_in_order(address, static_cast<CUstream>(stream)));
  }
  void TrimPool(std::uint64_t pool, Bytes kept) override { Expect(calls_.trim_pool(PoolOf(pool), Size(kept))); }
  PoolUse UseOf(std::uint64_t pool) const override {
    const auto read = [&](CUmemPool_attribute attribute) {
      cuuint64_t bytes = 0;
      Expect(calls_.get_pool(PoolOf(pool), attribute, &bytes));
      return Bytes(static_cast<std::int64_t>(bytes));
    };
    return {read(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), read(CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH),
            read(CU_MEMPOOL_ATTR_USED_MEM_CURRENT), read(CU_MEMPOOL_ATTR_USED_MEM_HIGH)};
  }

  Totals totals() const override {
    std::size_t free = 0, total = 0;
    Expect(cudaMemGetInfo(&free, &total));
    return {Bytes(static_cast<std::int64_t>(free)), Bytes(static_cast<std::int64_t>(total))};
  }

 private:
  static void FinishWork() { Expect(cudaDeviceSynchronize()); }

  static CUmemoryPool PoolOf(std::uint64_t pool) {
    return reinterpret_cast<CUmemoryPool>(pool);  // NOLINT(performance-no-int-to-ptr): the number of a handle
  }
  static std::size_t Size(Bytes bytes) { return static_cast<std::size_t>(bytes.count()); }

  std::optional<std::uint64_t> IfThereIsRoom(CUresult result, std::uint64_t what) const {
    if (result == CUDA_ERROR_OUT_OF_MEMORY) {
      return std::nullopt;
    }
    Expect(result);
    return what;
  }

  /// `line`: of the call.
  void Expect(CUresult result, int line = __builtin_LINE()) const {
    if (result != CUDA_SUCCESS) {
      const char* name = nullptr;
      calls_.error_name(result, &name);
      Fail(name == nullptr ? "a call of the CUDA driver" : name, __FILE__, line);
    }
  }
  static void Expect(cudaError_t result, int line = __builtin_LINE()) {
    if (result != cudaSuccess) {
      Fail(cudaGetErrorString(result), __FILE__, line);
    }
  }

  Calls calls_;
  CUmemAllocationProp properties_{};
  Bytes granularity_;
};

}  // namespace

Result<std::unique_ptr<GpuDriver>> GpuDriver::Open(int gpu) {
  const DeviceProbe probe = ProbeDevices();
  if (!probe.reason.empty()) {
    return CannotUse(gpu, probe.reason);
  }
  if (gpu < 0 || gpu >= std::ssize(probe.devices)) {
    return CannotUse(gpu, fmt::format("there are {}", probe.devices.size()));
  }
  if (const ProbedDevice& found = probe.devices[static_cast<std::size_t>(gpu)];
      found.compute_major < TIDEMARK_OLDEST_GPU / 10) {
    return CannotUse(
        gpu,
        fmt::format("{} has compute capability {}.{}, and this program is compiled for {}.{} and later", found.name,
                    found.compute_major, found.compute_minor, TIDEMARK_OLDEST_GPU / 10, TIDEMARK_OLDEST_GPU % 10));
  }
  Calls calls;
  if (!FindAll(calls)) {
    return CannotUse(gpu, "its driver is older than CUDA 12");
  }
  // The runtime makes the context, which libraries above it share. Waits block: one that spins looks busy to whoever
  // watches for ranks that hang (profiler/execute/watchdog.h).
  if (cudaError_t error = cudaInitDevice(gpu, cudaDeviceScheduleBlockingSync, cudaInitDeviceFlagsAreValid);
      error != cudaSuccess || (error = cudaSetDevice(gpu)) != cudaSuccess ||
      (error = cudaFree(nullptr)) != cudaSuccess) {
    return CannotUse(gpu, cudaGetErrorString(error));
  }
  return std::unique_ptr<GpuDriver>(std::make_unique<CudaDriver>(gpu, calls));
}

}  // namespace tidemark
