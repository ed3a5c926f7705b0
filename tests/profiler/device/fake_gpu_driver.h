// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <optional>

#include "profiler/device/gpu_driver.h"

namespace tidemark {

/// A driver that keeps the rules of a real one and has no GPU: addresses and handles are numbers, memory runs out.
class FakeGpuDriver final : public GpuDriver {
 public:
  explicit FakeGpuDriver(Bytes memory) : memory_(memory) {}

  /// Everything was given back.
  void ExpectNothingLeft() const {
    EXPECT_EQ(used_, Bytes());
    EXPECT_TRUE(pieces_.empty() && ranges_.empty() && handles_.empty() && mapped_.empty());
  }
  Bytes used() const { return used_; }

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
  std::optional<std::uint64_t> ReserveAddresses(Bytes bytes, Bytes alignment) override {
    EXPECT_EQ(bytes.count() % granularity().count(), 0);
    const std::uint64_t address = NextAddress(bytes, alignment);
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
    handles_[++last_handle_] = {bytes, false, false};
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
  void Unmap(std::uint64_t address, Bytes bytes) override {
    ASSERT_TRUE(mapped_.count(address) == 1);
    const std::uint64_t handle = mapped_.at(address);
    EXPECT_EQ(handles_[handle].bytes, bytes);
    mapped_.erase(address);
    handles_[handle].mapped = false;
    DropIfUnused(handle);
  }

  Totals totals() const override {
    ++times_asked_;
    return {memory_ - used_, memory_};
  }
  std::int64_t times_asked() const { return times_asked_; }

 private:
  struct Physical {
    Bytes bytes;
    bool mapped = false, released = false;
  };

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
  std::map<std::uint64_t, std::uint64_t> mapped_;  ///< handles by address
};

}  // namespace tidemark
