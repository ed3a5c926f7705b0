// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/device_memory.h"

#include <algorithm>
#include <limits>
#include <map>
#include <vector>

namespace tidemark {
namespace {

constexpr Bytes kMost = Bytes(std::numeric_limits<std::int64_t>::max());

/// Hands out addresses from the top down, as CUDA mostly does (the segments of the snapshots in tests/gpu/recorded).
/// Ranges lie above, one behind the other. Those that were given up are used again, as they are long.
class PretendMemory final : public DeviceMemory {
 public:
  explicit PretendMemory(Bytes capacity) : DeviceMemory(capacity) {}
  PretendMemory(const PretendMemory& other, Bytes capacity)
      : DeviceMemory(other, capacity), lowest_(other.lowest_), next_(other.next_), spare_ranges_(other.spare_ranges_) {}

  std::unique_ptr<DeviceMemory> On(Bytes capacity) const override {
    return std::make_unique<PretendMemory>(*this, capacity);
  }

  /// Longer than any device, so that an allocator never needs a second one. PyTorch reserves 9/8 of the device's
  /// memory; where that runs out, its second range costs it at most one more page than here.
  Bytes RangeOf(Bytes page) const override { return page * (std::int64_t{1} << 32); }

 private:
  std::optional<std::uint64_t> DoTake(Bytes bytes) override {
    std::uint64_t lowest = 0;
    if (__builtin_sub_overflow(lowest_, static_cast<std::uint64_t>(bytes.count()), &lowest)) {
      return std::nullopt;  // no address space is left
    }
    lowest_ = lowest;
    return lowest_;
  }
  void DoGive(std::uint64_t, Bytes) override {}
  bool DoMap(std::uint64_t, Bytes) override { return true; }
  void DoUnmap(std::uint64_t, Bytes) override {}

  std::optional<std::uint64_t> DoReserve(Bytes page) override {
    std::vector<std::uint64_t>& spare = spare_ranges_[page];
    if (spare.empty()) {
      const auto step = static_cast<std::uint64_t>(page.count());
      next_ = (next_ + step - 1) / step * step;
      return Advance(RangeOf(page));
    }
    const std::uint64_t address = spare.back();
    spare.pop_back();
    return address;
  }

  void DoRelease(std::uint64_t address, Bytes page) override { spare_ranges_[page].push_back(address); }

  std::uint64_t Advance(Bytes bytes) {
    const std::uint64_t address = next_;
    TIDEMARK_CHECK(!__builtin_add_overflow(next_, static_cast<std::uint64_t>(bytes.count()), &next_));
    return address;
  }

  static constexpr auto kTop = static_cast<std::uint64_t>(kPretendAddresses.count());  // pieces below, ranges above
  std::uint64_t lowest_ = kTop, next_ = kTop;
  std::map<Bytes, std::vector<std::uint64_t>> spare_ranges_;  // by page
};

}  // namespace

DeviceMemory::DeviceMemory(Bytes capacity) : capacity_(capacity) { TIDEMARK_CHECK(capacity >= Bytes(0)); }

DeviceMemory::DeviceMemory(const DeviceMemory& other, Bytes capacity)
    : capacity_(capacity),
      taken_(other.taken_),
      highest_(other.highest_),
      times_taken_(other.times_taken_),
      times_given_(other.times_given_) {}

std::optional<std::uint64_t> DeviceMemory::Take(Bytes bytes) {
  TIDEMARK_CHECK(bytes > Bytes(0));
  if (!Fits(bytes)) {
    return std::nullopt;
  }
  const std::optional<std::uint64_t> address = DoTake(bytes);
  if (address) {
    CountTaken(bytes);
  }
  return address;
}

void DeviceMemory::Give(std::uint64_t address, Bytes bytes) {
  TIDEMARK_CHECK(bytes > Bytes(0) && bytes <= taken_);
  DoGive(address, bytes);
  CountGiven(bytes);
}

std::optional<std::uint64_t> DeviceMemory::Reserve(Bytes page) { return DoReserve(page); }

void DeviceMemory::Release(std::uint64_t address, Bytes page) { DoRelease(address, page); }

bool DeviceMemory::Map(std::uint64_t address, Bytes bytes) {
  TIDEMARK_CHECK(bytes > Bytes(0));
  if (!Fits(bytes) || !DoMap(address, bytes)) {
    return false;
  }
  CountTaken(bytes);
  return true;
}

void DeviceMemory::Unmap(std::uint64_t address, Bytes bytes) {
  TIDEMARK_CHECK(bytes > Bytes(0) && bytes <= taken_);
  DoUnmap(address, bytes);
  CountGiven(bytes);
}

bool DeviceMemory::Covers(Bytes total, const std::function<Bytes(Bytes capacity)>& share) {
  if (share(capacity_) >= total) {
    return true;
  }
  Bytes less = capacity_, enough = kMost;
  while (enough - less > Bytes(1)) {
    const Bytes middle = less + (enough - less) / 2;
    (share(middle) >= total ? enough : less) = middle;
  }
  Remember(enough);
  return false;
}

bool DeviceMemory::Fits(Bytes bytes) {
  if (bytes <= capacity_ - taken_) {
    return true;
  }
  Remember(bytes > kMost - taken_ ? kMost : taken_ + bytes);
  return false;
}

void DeviceMemory::CountTaken(Bytes bytes) {
  ++times_taken_;
  taken_ += bytes;
  highest_ = std::max(highest_, taken_);
}

void DeviceMemory::CountGiven(Bytes bytes) {
  ++times_given_;
  taken_ -= bytes;
}

void DeviceMemory::Remember(Bytes enough) { enough_for_next_ = std::min(enough_for_next_.value_or(enough), enough); }

Bytes PartOf(double part, Bytes bytes) {
  const double product = part * static_cast<double>(bytes.count());
  return product < static_cast<double>(kMost.count()) ? Bytes(static_cast<std::int64_t>(product)) : bytes;
}

std::unique_ptr<DeviceMemory> MakePretendMemory(Bytes capacity) { return std::make_unique<PretendMemory>(capacity); }

}  // namespace tidemark
