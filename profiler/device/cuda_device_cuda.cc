// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <new>
#include <optional>
#include <utility>
#include <vector>

#include "base/check.h"
#include "kernels/blas.h"
#include "profiler/device/cuda_device.h"
#include "profiler/device/gpu_driver.h"
#include "profiler/device/gpu_memory.h"

namespace tidemark {
namespace {

void Expect(cudaError_t status) {
  if (status != cudaSuccess) {
    Fail(cudaGetErrorString(status), __FILE__, __LINE__);
  }
}

std::size_t Size(Bytes bytes) { return static_cast<std::size_t>(bytes.count()); }

/// cudaFree waits for all work of the GPU.
class CudaRoom final : public DeviceRoom {
 public:
  explicit CudaRoom(Bytes bytes) : DeviceRoom(Take(bytes)) {}
  ~CudaRoom() override { Expect(cudaFree(data())); }

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
  const kernels::Queue& QueueWith(kernels::cuda::Blas& blas) {
    using kernels::Queue;
    if (queue_.stream == nullptr) {
      room_.emplace(Bytes(Queue::kWorkspaceBytes + Queue::kScratchBytes + kNumber));
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

class CudaDevice final : public Device {
 public:
  CudaDevice(std::unique_ptr<GpuDriver> driver, std::unique_ptr<kernels::cuda::Blas> blas)
      : driver_(std::move(driver)), blas_(std::move(blas)) {}
  ~CudaDevice() override {
    for (const cudaEvent_t event : events_) {
      Expect(cudaEventDestroy(event));
    }
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  std::unique_ptr<DeviceMemory> MemoryOf(Bytes capacity) override {
    return std::make_unique<GpuMemory>(*driver_, std::min(capacity, driver_->totals().total));
  }
  std::unique_ptr<DeviceRoom> RoomFor(Bytes bytes) override { return std::make_unique<CudaRoom>(bytes); }

  void Give(std::uint32_t stream, Work work) override { work(On(stream).QueueWith(*blas_)); }
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
    while (queues_.size() <= stream) {
      queues_.push_back(std::make_unique<CudaQueue>());
    }
    return *queues_[stream];
  }

  std::unique_ptr<GpuDriver> driver_;
  std::unique_ptr<kernels::cuda::Blas> blas_;
  std::vector<std::unique_ptr<CudaQueue>> queues_;
  std::vector<cudaEvent_t> events_;
  std::size_t marks_ = 0;  ///< of the events, how many stand for something
};

}  // namespace

Result<std::unique_ptr<Device>> OpenCudaDevice(int gpu) {
  TIDEMARK_ASSIGN(std::unique_ptr<GpuDriver> driver, GpuDriver::Open(gpu));
  TIDEMARK_ASSIGN(auto blas, kernels::cuda::OpenCublasLt());
  return std::unique_ptr<Device>(std::make_unique<CudaDevice>(std::move(driver), std::move(blas)));
}

}  // namespace tidemark
