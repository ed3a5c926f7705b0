// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/host_device.h"

#include <cstddef>

#include "base/check.h"
#include "kernels/bytes_cuda.h"
#include "profiler/device/host_memory.h"

namespace tidemark {
namespace {

class HostRoom final : public DeviceRoom {
 public:
  explicit HostRoom(std::unique_ptr<std::byte[]> bytes) : DeviceRoom(bytes.get()), bytes_(std::move(bytes)) {}

 private:
  std::unique_ptr<std::byte[]> bytes_;
};

}  // namespace

HostDevice::HostDevice(kernels::Queue::Kind kind)
    : scratch_(kind == kernels::Queue::Kind::cpu ? 0 : kernels::Queue::kPartialSums),
      queue_{.kind = kind, .scratch = scratch_.empty() ? nullptr : scratch_.data()} {
  TIDEMARK_CHECK(kind != kernels::Queue::Kind::gpu);
}

std::unique_ptr<DeviceMemory> HostDevice::MemoryOf(Bytes capacity) {
  auto memory = std::make_unique<HostMemory>(capacity);
  memory_ = memory.get();
  return memory;
}

std::unique_ptr<DeviceRoom> HostDevice::RoomFor(Bytes bytes) {
  return std::make_unique<HostRoom>(std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes.count())));
}

std::unique_ptr<DeviceRoom> HostDevice::HostRoomFor(Bytes bytes) { return HostDevice::RoomFor(bytes); }

void HostDevice::Put(std::uint32_t, const void* host, void* to, Bytes bytes) { MoveBytes(queue_, host, to, bytes); }
void HostDevice::Fetch(std::uint32_t, const void* from, void* host, Bytes bytes) {
  MoveBytes(queue_, from, host, bytes);
}

}  // namespace tidemark
