// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "profiler/capture/annotations.h"
#include "sim/memory/device_memory.h"

namespace tidemark {

/// A device's memory, of which a tool is told what the allocator above holds: each piece, and each range of addresses,
/// whether pages are mapped there or not, as one heap.
class AnnouncedMemory final : public DeviceMemory {
 public:
  /// `to` outlives this.
  AnnouncedMemory(std::unique_ptr<DeviceMemory> below, Annotations& to)
      : DeviceMemory(below->capacity()), below_(std::move(below)), to_(to) {}
  AnnouncedMemory(const AnnouncedMemory&) = delete;
  /// What is still there goes with it.
  ~AnnouncedMemory() override;

  Bytes RangeOf(Bytes page) const override { return below_->RangeOf(page); }
  std::unique_ptr<DeviceMemory> On(Bytes capacity) const override { return below_->On(capacity); }
  Bytes mapped_peak() const override { return below_->mapped_peak(); }

 private:
  std::optional<std::uint64_t> DoTake(Bytes bytes) override;
  void DoGive(std::uint64_t address, Bytes bytes) override;
  std::optional<std::uint64_t> DoReserve(Bytes page) override;
  void DoRelease(std::uint64_t address, Bytes page) override;
  bool DoMap(std::uint64_t address, Bytes bytes) override { return below_->Map(address, bytes); }
  void DoUnmap(std::uint64_t address, Bytes bytes) override { below_->Unmap(address, bytes); }

  void Comes(std::uint64_t address, Bytes bytes);
  void Goes(std::uint64_t address);

  std::unique_ptr<DeviceMemory> below_;
  Annotations& to_;
  std::set<std::uint64_t> heaps_;
};

}  // namespace tidemark
