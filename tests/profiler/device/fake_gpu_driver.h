// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <utility>

#include "base/quantity.h"
#include "base/result.h"
#include "profiler/device/gpu_driver.h"

namespace tidemark {

/// A driver that keeps the rules of a real one and has no GPU: addresses and handles are numbers, memory runs out.
class FakeGpuDriver final : public GpuDriver {
 public:
  explicit FakeGpuDriver(Bytes memory) : memory_(memory) {}

  /// Everything was given back.
  void ExpectNothingLeft() const {
    EXPECT_EQ(used_, Bytes());
    EXPECT_TRUE(pieces_.empty() && ranges_.empty() && handles_.empty() && mapped_.empty() && pools_.empty());
  }
  Bytes used() const { return used_; }
  /// Whether the GPU may touch every page that is mapped.
  bool allows_all() const {
    return std::all_of(mapped_.begin(), mapped_.end(),
                       [&](const auto& page) { return handles_.at(page.second).allowed; });
  }

  std::optional<std::uint64_t> Allocate(Bytes bytes) override {
    if (!Use(bytes)) {
      return std::nullopt;
    }
    const std::uint64_t address = NextAddress(bytes, granularity());
    pieces_.emplace(address, bytes);
    return address;
  }
  void Free(std::uint64_t address) override {
    ASSERT_TRUE(pieces_.count(address) == 1);
    used_ -= pieces_.at(address);
    pieces_.erase(address);
  }

  Bytes granularity() const override { return Bytes(2 << 20); }
  /// As the driver's: from any multiple of the granularity on.
  std::optional<std::uint64_t> ReserveAddresses(Bytes bytes) override {
    EXPECT_EQ(bytes.count() % granularity().count(), 0);
    const std::uint64_t address = NextAddress(bytes, granularity());
    ranges_.emplace(address, bytes);
    return address;
  }
  void FreeAddresses(std::uint64_t address, Bytes bytes) override {
    ASSERT_TRUE(ranges_.count(address) == 1 && ranges_.at(address) == bytes);
    const auto mapped = mapped_.lower_bound(address);
    EXPECT_TRUE(mapped == mapped_.end() || mapped->first >= address + Length(bytes)) << "something is mapped there";
    ranges_.erase(address);
  }
  std::optional<std::uint64_t> MakeMemory(Bytes bytes) override {
    EXPECT_EQ(bytes.count() % granularity().count(), 0);
    if (!Use(bytes)) {
      return std::nullopt;
    }
    handles_[++last_handle_] = {bytes};
    return last_handle_;
  }
  void ReleaseMemory(std::uint64_t handle) override {
    ASSERT_TRUE(handles_.count(handle) == 1 && !handles_[handle].released);
    handles_[handle].released = true;
    DropIfUnused(handle);
  }
  void Map(std::uint64_t address, Bytes bytes, std::uint64_t handle) override {
    const auto range = ranges_.upper_bound(address);
    ASSERT_TRUE(range != ranges_.begin());
    ASSERT_LE(address + Length(bytes), std::prev(range)->first + Length(std::prev(range)->second));
    ASSERT_TRUE(handles_.count(handle) == 1 && handles_[handle].bytes == bytes && !handles_[handle].mapped);
    ASSERT_TRUE(mapped_.emplace(address, handle).second) << "mapped twice";
    handles_[handle].mapped = true;
  }
  void Allow(std::uint64_t address, Bytes bytes) override {
    const std::uint64_t end = address + Length(bytes);
    for (auto at = address; at < end;) {
      ASSERT_TRUE(mapped_.count(at) == 1) << "nothing is mapped there, or a page begins elsewhere";
      handles_[mapped_.at(at)].allowed = true;
      at += Length(handles_[mapped_.at(at)].bytes);
      EXPECT_LE(at, end) << "a part of a page";
    }
  }
  void Unmap(std::uint64_t address, Bytes bytes) override {
    ASSERT_TRUE(mapped_.count(address) == 1);
    const std::uint64_t handle = mapped_.at(address);
    EXPECT_EQ(handles_[handle].bytes, bytes);
    mapped_.erase(address);
    handles_[handle].mapped = handles_[handle].allowed = false;
    DropIfUnused(handle);
  }

  /// Pages of 32 MiB, as rapidsai/rmm#1245 found. What a stream has freed it has at once, others when FinishFrees says
  /// that the GPU is done.
  Result<std::uint64_t> MakePool(const PoolOptions& options) override {
    pools_[++last_handle_].options = options;
    return last_handle_;
  }
  void DropPool(std::uint64_t pool) override {
    ASSERT_TRUE(pools_.count(pool) == 1);
    EXPECT_EQ(pools_[pool].use.used, Bytes()) << "something in it is used, or has yet to be freed";
    used_ -= pools_[pool].use.reserved;
    pools_.erase(pool);
  }
  std::optional<std::uint64_t> AllocateFromPool(std::uint64_t pool, Bytes bytes, void* stream) override {
    Pool& from = pools_.at(pool);
    from.use.used -= std::exchange(from.freed[stream], Bytes());
    const Bytes needed(RoundUp((from.use.used + bytes).count(), kPoolPage.count()));
    const Bytes more = std::max(needed - from.use.reserved, Bytes());
    if (from.use.reserved + more > from.options.largest.value_or(memory_) || !Use(more)) {
      return std::nullopt;
    }
    from.use.reserved += more;
    from.use.reserved_peak = std::max(from.use.reserved_peak, from.use.reserved);
    from.use.used += bytes;
    from.use.used_peak = std::max(from.use.used_peak, from.use.used);
    const std::uint64_t address = NextAddress(bytes, Bytes(512));
    from.pieces.emplace(address, bytes);
    return address;
  }
  void FreeInOrder(std::uint64_t address, void* stream) override {
    for (auto& [handle, pool] : pools_) {
      if (const auto piece = pool.pieces.find(address); piece != pool.pieces.end()) {
        pool.freed[stream] += piece->second;
        pool.pieces.erase(piece);
        return;
      }
    }
    ADD_FAILURE() << "freed what no pool handed out";
  }
  void TrimPool(std::uint64_t pool, Bytes kept) override { Shrink(pools_.at(pool), kept); }
  PoolUse UseOf(std::uint64_t pool) const override { return pools_.at(pool).use; }
  void FinishFrees() {
    for (auto& [handle, pool] : pools_) {
      for (const auto& [stream, bytes] : pool.freed) {
        pool.use.used -= bytes;
      }
      pool.freed.clear();
      Shrink(pool, pool.options.release_threshold);
    }
  }

  Totals totals() const override {
    ++times_asked_;
    return {memory_ - used_, memory_};
  }
  std::int64_t times_asked() const { return times_asked_; }

 private:
  struct Physical {
    Bytes bytes;
    bool mapped = false, released = false, allowed = false;
  };

  struct Pool {
    PoolOptions options;
    PoolUse use;
    std::map<std::uint64_t, Bytes> pieces;
    std::map<void*, Bytes> freed;  ///< by stream, not yet over
  };
  static constexpr Bytes kPoolPage = Bytes(32 << 20);

  void Shrink(Pool& pool, Bytes kept) {
    const Bytes needed(RoundUp(std::max(pool.use.used, kept).count(), kPoolPage.count()));
    const Bytes less = std::max(pool.use.reserved - needed, Bytes());
    pool.use.reserved -= less;
    used_ -= less;
  }

  static std::uint64_t Length(Bytes bytes) { return static_cast<std::uint64_t>(bytes.count()); }
  bool Use(Bytes bytes) {
    if (used_ + bytes > memory_) {
      return false;
    }
    used_ += bytes;
    return true;
  }
  std::uint64_t NextAddress(Bytes bytes, Bytes alignment) {
    const std::uint64_t address = (next_ + Length(alignment) - 1) / Length(alignment) * Length(alignment);
    next_ = address + Length(bytes);
    return address;
  }
  void DropIfUnused(std::uint64_t handle) {
    if (handles_[handle].released && !handles_[handle].mapped) {
      used_ -= handles_[handle].bytes;
      handles_.erase(handle);
    }
  }

  Bytes memory_, used_;
  mutable std::int64_t times_asked_ = 0;  ///< for totals
  std::uint64_t next_ = std::uint64_t{1} << 40, last_handle_ = 0;
  std::map<std::uint64_t, Bytes> pieces_, ranges_;
  std::map<std::uint64_t, Physical> handles_;
  std::map<std::uint64_t, Pool> pools_;
  std::map<std::uint64_t, std::uint64_t> mapped_;  ///< handles by address
};

}  // namespace tidemark
