// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "profiler/device/gpu_device.h"
#include "tests/profiler/device/fake_gpu_driver.h"

namespace tidemark {

/// A GPU that counts and does no work: its memory can be taken, and not be written.
class FakeGpuDevice final : public GpuDevice {
 public:
  explicit FakeGpuDevice(Bytes memory) : driver_(memory) {}

  FakeGpuDriver& fake() { return driver_; }
  GpuBooks& own_books() { return books_; }
  void Manage(const GpuManagement& management) { management_ = management; }

  const GpuDriver& driver() const override { return driver_; }
  const GpuBooks& books() const override { return books_; }
  const GpuMemory& memory() const override { return *memory_; }
  const std::optional<GpuManagement>& management() const override { return management_; }

  std::unique_ptr<DeviceMemory> MemoryOf(Bytes capacity) override {
    auto memory = std::make_unique<GpuMemory>(driver_, capacity);
    memory_ = memory.get();
    return memory;
  }
  std::unique_ptr<DeviceRoom> RoomFor(Bytes) override { return nullptr; }
  std::unique_ptr<DeviceRoom> HostRoomFor(Bytes) override { return nullptr; }
  void Give(std::uint32_t, Work) override {}
  void* StreamOf(std::uint32_t) override { return nullptr; }
  void Put(std::uint32_t, const void*, void*, Bytes) override {}
  void Fetch(std::uint32_t, const void*, void*, Bytes) override {}
  bool is_synchronous() const override { return false; }
  Mark MarkIn(std::uint32_t) override { return 0; }
  void WaitFor(std::uint32_t, Mark) override {}
  void Finish(std::uint32_t) override {}
  void Synchronize() override {}
  Nanos Between(Mark, Mark) override { return {}; }
  void DropMarks() override {}

 private:
  FakeGpuDriver driver_;
  GpuBooks books_;
  std::optional<GpuManagement> management_;
  const GpuMemory* memory_ = nullptr;
};

}  // namespace tidemark
