// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "sim/memory/device_memory.h"

namespace tidemark {

/// Host memory as a device of limited capacity: what an address says can be read and written. Every piece is a mapping
/// of its own, and a range is addresses without access until pages are mapped there; what was given back or unmapped
/// can no longer be touched. New memory holds zeros. Where the system has no more memory it is as if the capacity were
/// used up.
///
/// It keeps books of its own about what it has mapped, which know nothing of what the allocator above it believes.
class HostMemory final : public DeviceMemory {
 public:
  explicit HostMemory(Bytes capacity) : DeviceMemory(capacity) {}
  HostMemory(const HostMemory&) = delete;
  ~HostMemory() override;

  /// 64 times the capacity, and at most 1 TiB: address space is not endless. An allocator that puts everything at the
  /// lowest place where it fits stays far below that, and so does what it would in a range without end.
  Bytes RangeOf(Bytes page) const override;
  std::unique_ptr<DeviceMemory> On(Bytes capacity) const override;

  /// Bytes that can be touched now, in whole pages of the system; and the most there have been.
  Bytes mapped() const { return mapped_; }
  Bytes mapped_peak() const override { return mapped_peak_; }
  /// Every stretch [begin, end) of addresses that can be touched now.
  void ForEachMapped(const std::function<void(std::uint64_t begin, std::uint64_t end)>& visit) const;
  /// Calls `look` before memory goes back to the system.
  void BeforeGiving(std::function<void()> look) { before_giving_ = std::move(look); }

 private:
  std::optional<std::uint64_t> DoTake(Bytes bytes) override;
  void DoGive(std::uint64_t address, Bytes bytes) override;
  std::optional<std::uint64_t> DoReserve(Bytes page) override;
  void DoRelease(std::uint64_t address, Bytes page) override;
  bool DoMap(std::uint64_t address, Bytes bytes) override;
  void DoUnmap(std::uint64_t address, Bytes bytes) override;

  /// A mapping of addresses, of which the allocator sees those from the address it was handed out under.
  struct Mapping {
    std::uint64_t begin = 0;
    std::uint64_t length = 0;
  };

  void Add(std::uint64_t bytes);
  void LookBeforeGiving() const;

  std::map<std::uint64_t, Mapping> pieces_, ranges_;  // by the address that was handed out
  std::map<std::uint64_t, std::uint64_t> pages_;      // mapped stretches of ranges, begin -> end
  Bytes mapped_, mapped_peak_;
  std::function<void()> before_giving_;
};

}  // namespace tidemark
