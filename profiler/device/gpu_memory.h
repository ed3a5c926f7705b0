// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "profiler/device/gpu_driver.h"
#include "sim/memory/device_memory.h"

namespace tidemark {

/// A GPU's memory, or a part of it, below an allocator: pieces by cudaMalloc, and ranges by cuMemAddressReserve, where
/// each page is physical memory of its own, as in PyTorch's expandable segments (c10/cuda/CUDACachingAllocator.cpp,
/// ExpandableSegment). Where the GPU has no more it is as if the capacity were used up. What is still there when it
/// goes is given back.
class GpuMemory final : public DeviceMemory {
 public:
  /// `driver` outlives this.
  GpuMemory(GpuDriver& driver, Bytes capacity) : DeviceMemory(capacity), driver_(driver) {}
  GpuMemory(const GpuMemory&) = delete;
  ~GpuMemory() override;

  /// 16 times the capacity: addresses are plenty (2^47), and an allocator that puts everything at the lowest place
  /// where it fits stays far below.
  Bytes RangeOf(Bytes page) const override;
  std::unique_ptr<DeviceMemory> On(Bytes capacity) const override;

  /// Whether an address lies in what was taken or reserved here.
  bool Has(std::uint64_t address) const;
  /// Every stretch [begin, end) of addresses that has memory behind it: pieces, and pages one behind the other.
  void ForEachTaken(const std::function<void(std::uint64_t begin, std::uint64_t end)>& visit) const;

 private:
  /// What was reserved is longer by a page, so that a multiple of the page lies in it.
  struct Range {
    Bytes bytes, page;
    std::uint64_t begin = 0;  ///< of what was reserved
  };

  std::optional<std::uint64_t> DoTake(Bytes bytes) override;
  void DoGive(std::uint64_t address, Bytes bytes) override;
  std::optional<std::uint64_t> DoReserve(Bytes page) override;
  void DoRelease(std::uint64_t address, Bytes page) override;
  bool DoMap(std::uint64_t address, Bytes bytes) override;
  void DoUnmap(std::uint64_t address, Bytes bytes) override;

  Bytes PageAt(std::uint64_t address) const;
  void UnmapPage(std::uint64_t address, Bytes page);
  void FreeAddressesOf(const Range& range) { driver_.FreeAddresses(range.begin, range.bytes + range.page); }

  GpuDriver& driver_;
  std::map<std::uint64_t, Bytes> pieces_;
  std::map<std::uint64_t, Range> ranges_;
  std::map<std::uint64_t, std::uint64_t> pages_;  ///< handles by the address that they are mapped at
};

}  // namespace tidemark
