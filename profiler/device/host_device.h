// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "profiler/device/device.h"
#include "profiler/device/host_memory.h"

namespace tidemark {

/// The processor that this program runs on: all work is done on the calling thread when it is given.
class HostDevice : public Device {
 public:
  /// `kind` is one that needs no GPU: the CPU truth, or what a GPU computes.
  explicit HostDevice(kernels::Queue::Kind kind = kernels::Queue::Kind::cpu);

  std::unique_ptr<DeviceMemory> MemoryOf(Bytes capacity) override;
  /// What MemoryOf gave last, for as long as it is there.
  HostMemory* memory() const { return memory_; }
  std::unique_ptr<DeviceRoom> RoomFor(Bytes bytes) override;
  std::unique_ptr<DeviceRoom> HostRoomFor(Bytes bytes) override;
  void Give(std::uint32_t, Work work) override { work(queue_); }
  void* StreamOf(std::uint32_t) override { return nullptr; }
  void Put(std::uint32_t stream, const void* host, void* to, Bytes bytes) override;
  void Fetch(std::uint32_t stream, const void* from, void* host, Bytes bytes) override;
  bool is_synchronous() const override { return true; }
  Mark MarkIn(std::uint32_t) override { return 0; }
  void WaitFor(std::uint32_t, Mark) override {}
  void Finish(std::uint32_t) override {}
  void Synchronize() override {}
  Nanos Between(Mark, Mark) override { return {}; }
  void DropMarks() override {}

 private:
  HostMemory* memory_ = nullptr;
  std::vector<double> scratch_;
  kernels::Queue queue_;
};

}  // namespace tidemark
