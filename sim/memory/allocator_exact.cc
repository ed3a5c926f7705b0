// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "sim/memory/allocator.h"

namespace tidemark {
namespace {

/// Counts bytes and places nothing: an address is never used twice, so that live allocations never overlap.
class ExactAllocator final : public Allocator {
 public:
  explicit ExactAllocator(Bytes capacity) : device_(capacity) {}

  std::optional<Allocation> Allocate(Bytes request, std::uint32_t) override {
    if (!device_.Take(request)) {
      return std::nullopt;
    }
    std::uint32_t handle = static_cast<std::uint32_t>(live_.size());
    if (spare_.empty()) {
      live_.push_back(request);
    } else {
      handle = spare_.back();
      spare_.pop_back();
      live_[handle] = request;
    }
    const std::uint64_t address = next_address_;
    next_address_ += static_cast<std::uint64_t>(request.count());
    return Allocation{handle, address, request};
  }

  void Free(std::uint32_t handle) override {
    TIDEMARK_CHECK(handle < live_.size() && live_[handle] != kDead);
    device_.Give(live_[handle]);
    live_[handle] = kDead;
    spare_.push_back(handle);
  }

  std::unique_ptr<Allocator> CopyOn(Bytes capacity) const override {
    auto copy = std::make_unique<ExactAllocator>(*this);
    copy->device_ = device_.On(capacity);
    return copy;
  }

  Bytes allocated() const override { return device_.taken(); }
  Bytes allocated_peak() const override { return device_.highest(); }
  const DeviceMemory& device() const override { return device_; }
  std::int64_t cache_flushes() const override { return 0; }

 private:
  static constexpr Bytes kDead = Bytes(-1);

  DeviceMemory device_;
  std::vector<Bytes> live_;  // by handle
  std::vector<std::uint32_t> spare_;
  std::uint64_t next_address_ = 0;
};

}  // namespace

std::unique_ptr<Allocator> MakeExactAllocator(Bytes capacity) { return std::make_unique<ExactAllocator>(capacity); }

}  // namespace tidemark
