// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
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
#include "profiler/device/steady_now.h"

namespace tidemark {
namespace {

/// `line`: of the call.
void Expect(cudaError_t status, int line = __builtin_LINE()) {
  if (status != cudaSuccess) {
    Fail(cudaGetErrorString(status), __FILE__, line);
  }
}

std::size_t Size(Bytes bytes) { return static_cast<std::size_t>(bytes.count()); }

/// By a call like cudaMalloc. The runtime remembers a failure for whoever asks next: nobody is to be told twice.
void* Take(cudaError_t (*allocate)(void**, std::size_t), Bytes bytes) {
  void* data = nullptr;
  const cudaError_t error = allocate(&data, Size(bytes));
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    throw std::bad_alloc();
  }
  Expect(error);
  return data;
}

/// Rooms share the driver's pages: `booked` changes by what the driver takes when one comes, and gives back when it
/// goes.
class CudaRoom final : public DeviceRoom {
 public:
  CudaRoom(Bytes bytes, const GpuDriver& driver, Bytes& booked) : CudaRoom(bytes, driver, booked, driver.totals()) {}
  /// Work that still writes there is waited for: cudaFree does not promise to.
  ~CudaRoom() override {
    Expect(cudaDeviceSynchronize());
    const GpuDriver::Totals before = driver_.totals();
    Expect(cudaFree(data()));
    booked_ -= driver_.totals().free - before.free;
  }
  CudaRoom(const CudaRoom&) = delete;
  CudaRoom& operator=(const CudaRoom&) = delete;

 private:
  CudaRoom(Bytes bytes, const GpuDriver& driver, Bytes& booked, const GpuDriver::Totals& before)
      : DeviceRoom(Take(&cudaMalloc, bytes)), driver_(driver), booked_(booked) {
    booked_ += before.free - driver_.totals().free;
  }

  const GpuDriver& driver_;
  Bytes& booked_;
};

class PinnedRoom final : public DeviceRoom {
 public:
  explicit PinnedRoom(Bytes bytes) : DeviceRoom(Take(&cudaMallocHost, bytes)) {}
  ~PinnedRoom() override { Expect(cudaFreeHost(data())); }
  PinnedRoom(const PinnedRoom&) = delete;
  PinnedRoom& operator=(const PinnedRoom&) = delete;
};

/// Pinned memory that what comes from the host's pageable memory goes through, so that a copy waits for no stream: the
/// driver may wait for the stream where it stages such a copy by itself ("API synchronization behavior" of CUDA's
/// runtime). Slots are taken in turns; whoever comes to one that is still read waits for that.
class Staging {
 public:
  Staging() = default;
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() {
    for (Slot& slot : slots_) {
      if (slot.room) {
        Expect(cudaEventDestroy(slot.read));
      }
    }
  }

  void Put(cudaStream_t stream, const void* host, void* to, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += kSlot) {
      const Slot& slot = Next();
      const std::size_t count = std::min(kSlot, bytes - at);
      std::memcpy(slot.room->data(), static_cast<const char*>(host) + at, count);
      Expect(cudaMemcpyAsync(static_cast<char*>(to) + at, slot.room->data(), count, cudaMemcpyHostToDevice, stream));
      Expect(cudaEventRecord(slot.read, stream));
    }
  }

 private:
  static constexpr std::size_t kSlot = std::size_t{1} << 20;  // a microbatch's tokens are some 100 KiB
  struct Slot {
    std::unique_ptr<PinnedRoom> room;
    cudaEvent_t read = nullptr;
  };

  const Slot& Next() {
    Slot& slot = slots_[next_++ % slots_.size()];
    if (slot.room == nullptr) {
      slot.room = std::make_unique<PinnedRoom>(Bytes(static_cast<std::int64_t>(kSlot)));
      Expect(cudaEventCreateWithFlags(&slot.read, cudaEventDisableTiming | cudaEventBlockingSync));
    }
    Expect(cudaEventSynchronize(slot.read));
    return slot;
  }

  std::array<Slot, 8> slots_;
  std::size_t next_ = 0;
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
  const kernels::Queue& QueueWith(kernels::cuda::Blas& blas, const GpuDriver& driver, Bytes& booked) {
    using kernels::Queue;
    if (queue_.stream == nullptr) {
      room_.emplace(Bytes(Queue::kWorkspaceBytes + Queue::kScratchBytes + kNumber), driver, booked);
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
      : driver_(std::move(driver)), blas_(std::move(blas)), books_(books), management_(management) {}
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
  std::unique_ptr<DeviceRoom> RoomFor(Bytes bytes) override {
    return std::make_unique<CudaRoom>(bytes, *driver_, books_.rooms);
  }

  std::unique_ptr<DeviceRoom> HostRoomFor(Bytes bytes) override { return std::make_unique<PinnedRoom>(bytes); }

  const GpuDriver& driver() const override { return *driver_; }
  const GpuBooks& books() const override { return books_; }
  const GpuMemory& memory() const override { return *memory_; }
  const GpuPool* pool() const override { return pool_; }
  const std::optional<GpuManagement>& management() const override { return management_; }

  void Give(std::uint32_t stream, Work work) override {
    const kernels::Queue& queue = On(stream).QueueWith(*blas_, *driver_, books_.workspace);
    Call([&] { work(queue); });
  }
  std::vector<std::string> notes() const override {
    const std::int64_t declined = blas_->declined();
    return declined == 0 ? std::vector<std::string>()
                         : std::vector<std::string>{fmt::format(
                               "cuBLASLt has no way for {} kinds of products: kernels of tidemark do them, or what is "
                               "added to them, and are many times slower",
                               declined)};
  }
  void CountCode(bool counts) override { counts_code_ = counts; }
  void Call(const std::function<void()>& call) override {
    if (!counts_code_) {
      call();
      return;
    }
    const Nanos from = SteadyNow();
    const Bytes before = Unbooked();
    call();
    if (const Bytes grown = Unbooked() - before; grown != Bytes()) {
      books_.code.push_back({from, SteadyNow(), grown});
    }
  }
  void* StreamOf(std::uint32_t stream) override { return On(stream).stream(); }
  void Set(std::uint32_t stream, int byte, void* at, Bytes bytes) override {
    Expect(cudaMemsetAsync(at, byte, Size(bytes), On(stream).stream()));
  }
  void Put(std::uint32_t stream, const void* host, void* to, Bytes bytes) override {
    cudaPointerAttributes attributes{};
    Expect(cudaPointerGetAttributes(&attributes, host));
    if (attributes.type == cudaMemoryTypeUnregistered) {
      staging_.Put(On(stream).stream(), host, to, Size(bytes));
    } else {
      Expect(cudaMemcpyAsync(to, host, Size(bytes), cudaMemcpyHostToDevice, On(stream).stream()));
    }
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
  /// What is used of the GPU and is neither a room nor a pool's; while work is given, tensors do not come or go.
  Bytes Unbooked() const {
    const GpuDriver::Totals totals = driver_->totals();
    return totals.total - totals.free - books_.rooms - books_.workspace -
           (pool_ != nullptr ? pool_->use().reserved : Bytes());
  }
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
  Staging staging_;
  bool counts_code_ = false;
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
  books.context_made = SteadyNow();
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
      std::make_unique<CudaDevice>(std::move(driver), std::move(blas), books, management));
}

}  // namespace tidemark
