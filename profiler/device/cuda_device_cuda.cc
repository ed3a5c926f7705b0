// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <map>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/blas.h"
#include "profiler/device/cuda_device.h"
#include "profiler/device/gpu_device.h"
#include "profiler/device/gpu_driver.h"
#include "profiler/device/gpu_management.h"
#include "profiler/device/gpu_memory.h"
#include "profiler/device/gpu_pool.h"
#include "profiler/device/pool_allocator.h"

namespace tidemark {
namespace {

void Expect(cudaError_t status) {
  if (status != cudaSuccess) {
    Fail(cudaGetErrorString(status), __FILE__, __LINE__);
  }
}

std::size_t Size(Bytes bytes) { return static_cast<std::size_t>(bytes.count()); }

/// cudaFree waits for all work of the GPU. While it is there, `booked` contains its bytes.
class CudaRoom final : public DeviceRoom {
 public:
  CudaRoom(Bytes bytes, Bytes& booked) : DeviceRoom(Take(bytes)), bytes_(bytes), booked_(booked) { booked_ += bytes; }
  ~CudaRoom() override {
    Expect(cudaFree(data()));
    booked_ -= bytes_;
  }
  CudaRoom(const CudaRoom&) = delete;
  CudaRoom& operator=(const CudaRoom&) = delete;

 private:
  static void* Take(Bytes bytes) {
    void* data = nullptr;
    const cudaError_t error = cudaMalloc(&data, Size(bytes));
    if (error == cudaErrorMemoryAllocation) {
      throw std::bad_alloc();
    }
    Expect(error);
    return data;
  }

  Bytes bytes_;
  Bytes& booked_;
};

class PinnedRoom final : public DeviceRoom {
 public:
  explicit PinnedRoom(Bytes bytes) : DeviceRoom(Take(bytes)) {}
  ~PinnedRoom() override { Expect(cudaFreeHost(data())); }

 private:
  static void* Take(Bytes bytes) {
    void* data = nullptr;
    const cudaError_t error = cudaMallocHost(&data, Size(bytes));
    if (error == cudaErrorMemoryAllocation) {
      throw std::bad_alloc();
    }
    Expect(error);
    return data;
  }
};

/// One stream of a program.
class CudaQueue {
 public:
  CudaQueue() { Expect(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking)); }
  ~CudaQueue() { Expect(cudaStreamDestroy(stream_)); }
  CudaQueue(const CudaQueue&) = delete;
  CudaQueue& operator=(const CudaQueue&) = delete;

  cudaStream_t stream() const { return stream_; }
  /// With what kernels write beside their tensors; a stream without kernels has none of that.
  const kernels::Queue& QueueWith(kernels::cuda::Blas& blas, Bytes& booked) {
    using kernels::Queue;
    if (queue_.stream == nullptr) {
      room_.emplace(Bytes(Queue::kWorkspaceBytes + Queue::kScratchBytes + kNumber), booked);
      char* const workspace = static_cast<char*>(room_->data());
      char* const scratch = workspace + Queue::kWorkspaceBytes;
      queue_ = {.kind = Queue::Kind::gpu,
                .stream = stream_,
                .scratch = scratch,
                .blas = &blas,
                .workspace = workspace,
                .workspace_bytes = Queue::kWorkspaceBytes,
                .number = scratch + Queue::kScratchBytes};
    }
    return queue_;
  }

 private:
  static constexpr std::int64_t kNumber = 8;
  cudaStream_t stream_ = nullptr;
  std::optional<CudaRoom> room_;
  kernels::Queue queue_;
};

class CudaDevice final : public GpuDevice {
 public:
  CudaDevice(std::unique_ptr<GpuDriver> driver, std::unique_ptr<kernels::cuda::Blas> blas, const GpuBooks& books,
             std::optional<GpuManagement> management)
      : driver_(std::move(driver)), blas_(std::move(blas)), books_(books), management_(std::move(management)) {}
  ~CudaDevice() override {
    for (const cudaEvent_t event : events_) {
      Expect(cudaEventDestroy(event));
    }
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  std::unique_ptr<DeviceMemory> MemoryOf(Bytes capacity) override {
    auto memory = std::make_unique<GpuMemory>(*driver_, std::min(capacity, driver_->totals().total));
    memory_ = memory.get();
    pool_ = nullptr;
    return memory;
  }
  Result<std::unique_ptr<Allocator>> OwnAllocator(const AllocatorOptions& options, Bytes capacity) override {
    if (options.kind != AllocatorKind::cuda_async) {
      return std::unique_ptr<Allocator>();
    }
    TIDEMARK_ASSIGN(std::unique_ptr<GpuPool> pool, GpuPool::Make(*driver_, capacity, options.release_threshold));
    pool_ = pool.get();
    return MakePoolAllocator(std::move(pool), *this);
  }
  std::unique_ptr<DeviceRoom> RoomFor(Bytes bytes) override { return std::make_unique<CudaRoom>(bytes, books_.rooms); }

  std::unique_ptr<DeviceRoom> HostRoomFor(Bytes bytes) override { return std::make_unique<PinnedRoom>(bytes); }

  const GpuDriver& driver() const override { return *driver_; }
  const GpuBooks& books() const override { return books_; }
  const GpuMemory& memory() const override { return *memory_; }
  const GpuPool* pool() const override { return pool_; }
  const std::optional<GpuManagement>& management() const override { return management_; }

  void Give(std::uint32_t stream, Work work) override { work(On(stream).QueueWith(*blas_, books_.workspace)); }
  void* StreamOf(std::uint32_t stream) override { return On(stream).stream(); }
  /// From pageable memory the copy returns when the driver has staged it ("API synchronization behavior" of CUDA's
  /// runtime), so that the caller may write there again.
  void Put(std::uint32_t stream, const void* host, void* to, Bytes bytes) override {
    Expect(cudaMemcpyAsync(to, host, Size(bytes), cudaMemcpyHostToDevice, On(stream).stream()));
  }
  void Fetch(std::uint32_t stream, const void* from, void* host, Bytes bytes) override {
    Expect(cudaMemcpyAsync(host, from, Size(bytes), cudaMemcpyDeviceToHost, On(stream).stream()));
    Expect(cudaStreamSynchronize(On(stream).stream()));
  }

  bool is_synchronous() const override { return false; }
  Mark MarkIn(std::uint32_t stream) override {
    if (marks_ == events_.size()) {
      Expect(cudaEventCreate(&events_.emplace_back()));
    }
    Expect(cudaEventRecord(events_[marks_], On(stream).stream()));
    return marks_++;
  }
  void WaitFor(std::uint32_t stream, Mark mark) override {
    Expect(cudaStreamWaitEvent(On(stream).stream(), events_.at(mark), 0));
  }
  void Finish(std::uint32_t stream) override { Expect(cudaStreamSynchronize(On(stream).stream())); }
  void Synchronize() override { Expect(cudaDeviceSynchronize()); }
  Nanos Between(Mark from, Mark to) override {
    float milliseconds = 0;
    Expect(cudaEventElapsedTime(&milliseconds, events_.at(from), events_.at(to)));
    return Nanos(std::llround(static_cast<double>(milliseconds) * 1e6));
  }
  void DropMarks() override { marks_ = 0; }

 private:
  CudaQueue& On(std::uint32_t stream) {
    std::unique_ptr<CudaQueue>& queue = queues_[stream];
    if (queue == nullptr) {
      queue = std::make_unique<CudaQueue>();
    }
    return *queue;
  }

  std::unique_ptr<GpuDriver> driver_;
  std::unique_ptr<kernels::cuda::Blas> blas_;
  GpuBooks books_;
  std::optional<GpuManagement> management_;
  const GpuMemory* memory_ = nullptr;
  const GpuPool* pool_ = nullptr;
  std::map<std::uint32_t, std::unique_ptr<CudaQueue>> queues_;
  std::vector<cudaEvent_t> events_;
  std::size_t marks_ = 0;  ///< of the events, how many stand for something
};

std::optional<GpuManagement> ManagementOf(int gpu) {
  std::array<char, 32> bus_id{};  // CUDA wants 13 at least
  if (cudaDeviceGetPCIBusId(bus_id.data(), static_cast<int>(bus_id.size()), gpu) != cudaSuccess) {
    return std::nullopt;
  }
  return GpuManagement::Open(bus_id.data());
}

Nanos Now() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return Nanos(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

/// What its context has taken, which has just been made; `before` was used of the GPU when there was none.
GpuBooks OpenBooks(const GpuDriver& driver, const std::optional<GpuManagement>& management,
                   std::optional<Bytes> before) {
  GpuBooks books;
  const GpuDriver::Totals totals = driver.totals();
  const std::optional<Bytes> after = management ? management->used() : std::nullopt;
  if (before && after) {
    books.context = *after - *before;
  }
  books.used_before = totals.total - totals.free - books.context.value_or(Bytes());
  books.context_made = Now();
  return books;
}

}  // namespace

Result<std::unique_ptr<GpuDevice>> OpenCudaDevice(int gpu) {
  std::optional<GpuManagement> management = ManagementOf(gpu);
  const std::optional<Bytes> before = management ? management->used() : std::nullopt;
  TIDEMARK_ASSIGN(std::unique_ptr<GpuDriver> driver, GpuDriver::Open(gpu));
  const GpuBooks books = OpenBooks(*driver, management, before);
  TIDEMARK_ASSIGN(auto blas, kernels::cuda::OpenCublasLt());
  return std::unique_ptr<GpuDevice>(
      std::make_unique<CudaDevice>(std::move(driver), std::move(blas), books, std::move(management)));
}

}  // namespace tidemark
