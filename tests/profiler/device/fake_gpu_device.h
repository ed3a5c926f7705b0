// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "models/job/allocator_options.h"
#include "profiler/device/gpu_device.h"
#include "profiler/device/gpu_pool.h"
#include "profiler/device/pool_allocator.h"
#include "sim/memory/allocator.h"
#include "tests/profiler/device/fake_gpu_driver.h"

namespace tidemark {

/// A GPU that counts and does no work: its memory can be taken, and not be written.
class FakeGpuDevice final : public GpuDevice {
 public:
  explicit FakeGpuDevice(Bytes memory) : driver_(memory) {}

  FakeGpuDriver& fake() { return driver_; }
  GpuBooks& own_books() { return books_; }
  /// Which streams were told to wait for which marks.
  const std::vector<std::pair<std::uint32_t, Mark>>& waits() const { return waits_; }
  void Manage(const GpuManagement& management) { management_ = management; }

  const GpuDriver& driver() const override { return driver_; }
  const GpuBooks& books() const override { return books_; }
  const GpuMemory& memory() const override { return *memory_; }
  const GpuPool* pool() const override { return pool_; }
  const std::optional<GpuManagement>& management() const override { return management_; }

  std::unique_ptr<DeviceMemory> MemoryOf(Bytes capacity) override {
    auto memory = std::make_unique<GpuMemory>(driver_, capacity);
    memory_ = memory.get();
    pool_ = nullptr;
    return memory;
  }
  Result<std::unique_ptr<Allocator>> OwnAllocator(const AllocatorOptions& options, Bytes capacity) override {
    if (options.kind != AllocatorKind::cuda_async) {
      return std::unique_ptr<Allocator>();
    }
    TIDEMARK_ASSIGN(std::unique_ptr<GpuPool> pool, GpuPool::Make(driver_, capacity, options.release_threshold));
    pool_ = pool.get();
    return MakePoolAllocator(std::move(pool), *this);
  }
  std::unique_ptr<DeviceRoom> RoomFor(Bytes) override { return nullptr; }
  std::unique_ptr<DeviceRoom> HostRoomFor(Bytes) override { return nullptr; }
  void Give(std::uint32_t, Work) override {}
  void* StreamOf(std::uint32_t stream) override {
    return reinterpret_cast<void*>(std::uintptr_t{stream} + 1);  // NOLINT(performance-no-int-to-ptr): a number
  }
  void Put(std::uint32_t, const void*, void*, Bytes) override {}
  void Fetch(std::uint32_t, const void*, void*, Bytes) override {}
  bool is_synchronous() const override { return false; }
  Mark MarkIn(std::uint32_t) override { return 0; }
  void WaitFor(std::uint32_t stream, Mark mark) override { waits_.emplace_back(stream, mark); }
  void Finish(std::uint32_t) override {}
  void Synchronize() override { driver_.FinishFrees(); }
  Nanos Between(Mark, Mark) override { return {}; }
  void DropMarks() override {}

 private:
  FakeGpuDriver driver_;
  GpuBooks books_;
  std::optional<GpuManagement> management_;
  const GpuMemory* memory_ = nullptr;
  const GpuPool* pool_ = nullptr;
  std::vector<std::pair<std::uint32_t, Mark>> waits_;
};

}  // namespace tidemark
