// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "sim/memory/allocator.h"

namespace tidemark {
namespace {

/// Every request is a piece of the device of its own.
class ExactAllocator final : public Allocator {
 public:
  explicit ExactAllocator(std::unique_ptr<DeviceMemory> device) : device_(std::move(device)) {}
  ExactAllocator(const ExactAllocator& other, Bytes capacity)
      : Allocator(other), device_(other.device_->On(capacity)), live_(other.live_), spare_(other.spare_) {}

  std::optional<Allocation> Allocate(Bytes request, std::uint32_t) override {
    std::uint64_t address = 0;
    if (request > Bytes(0)) {
      const std::optional<std::uint64_t> taken = device_->Take(request);
      if (!taken) {
        ++ooms_;
        return std::nullopt;
      }
      address = *taken;
    }
    std::uint32_t handle = static_cast<std::uint32_t>(live_.size());
    if (spare_.empty()) {
      live_.push_back({address, request});
    } else {
      handle = spare_.back();
      spare_.pop_back();
      live_[handle] = {address, request};
    }
    return Allocation{handle, address, request};
  }

  void Free(std::uint32_t handle) override {
    TIDEMARK_CHECK(handle < live_.size() && live_[handle].bytes != kDead);
    if (live_[handle].bytes > Bytes(0)) {
      device_->Give(live_[handle].address, live_[handle].bytes);
    }
    live_[handle].bytes = kDead;
    spare_.push_back(handle);
  }

  std::unique_ptr<Allocator> CopyOn(Bytes capacity) const override {
    return std::make_unique<ExactAllocator>(*this, capacity);
  }

  Bytes allocated() const override { return device_->taken(); }
  Bytes allocated_peak() const override { return device_->highest(); }
  const DeviceMemory& device() const override { return *device_; }
  std::int64_t cache_flushes() const override { return 0; }

  std::vector<DeviceSegment> Segments() const override {
    std::vector<DeviceSegment> segments;
    for (std::uint32_t handle = 0; handle < live_.size(); ++handle) {
      if (live_[handle].bytes > Bytes(0)) {
        segments.push_back({{{live_[handle].address, live_[handle].bytes, handle}}});
      }
    }
    return segments;
  }

  AllocatorStatistics Statistics() const override {
    AllocatorStatistics all;
    all.allocations = all.active = all.segments = static_cast<std::int64_t>(live_.size() - spare_.size());
    all.allocated = all.active_bytes = all.requested = all.reserved = device_->taken();
    all.ooms = ooms_;
    return all;
  }

 private:
  static constexpr Bytes kDead = Bytes(-1);
  struct Piece {
    std::uint64_t address = 0;
    Bytes bytes;
  };

  std::unique_ptr<DeviceMemory> device_;
  std::vector<Piece> live_;  // by handle
  std::vector<std::uint32_t> spare_;
  std::int64_t ooms_ = 0;
};

}  // namespace

std::unique_ptr<Allocator> MakeExactAllocator(std::unique_ptr<DeviceMemory> device) {
  return std::make_unique<ExactAllocator>(std::move(device));
}

}  // namespace tidemark
