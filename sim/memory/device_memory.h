// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "base/quantity.h"

namespace tidemark {

/// The device below an allocator: so many bytes, which can run out, and addresses. This class counts; what an address
/// is, and whether there is memory behind it, is up to the class that implements it.
///
/// Memory comes in two ways. A piece is taken and given back as a whole (cudaMalloc). A range is addresses alone, of
/// which pages are mapped and unmapped (cuMemAddressReserve, cuMemMap).
///
/// The capacity enters what an allocator does only by questions asked here. Each answer that a larger capacity would
/// turn is remembered: a run repeats itself exactly under every capacity below `enough_for_next()`.
class DeviceMemory {
 public:
  explicit DeviceMemory(Bytes capacity);
  virtual ~DeviceMemory() = default;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  /// The address of a piece of `bytes`, more than none; empty where it does not fit into the capacity.
  std::optional<std::uint64_t> Take(Bytes bytes);
  /// Gives a piece back, with its whole length.
  void Give(std::uint64_t address, Bytes bytes);

  /// The first address of a range of `RangeOf(page)` bytes, which is a multiple of `page`. Nothing is mapped there.
  std::optional<std::uint64_t> Reserve(Bytes page);
  /// Gives up a range in which nothing is mapped.
  void Release(std::uint64_t address, Bytes page);
  /// How long a range is: a whole number of pages, and more than the allocators will ever use.
  virtual Bytes RangeOf(Bytes page) const = 0;
  /// Puts memory behind addresses of a range, whole pages of it, all or none; false where it does not fit.
  bool Map(std::uint64_t address, Bytes bytes);
  void Unmap(std::uint64_t address, Bytes bytes);

  /// Whether `share` of the capacity is at least `total`. A share never falls as the capacity grows.
  bool Covers(Bytes total, const std::function<Bytes(Bytes capacity)>& share);

  /// The same memory on a device of another capacity, where no answer has been remembered yet. Only for memory that is
  /// none (PretendMemory).
  virtual std::unique_ptr<DeviceMemory> On(Bytes capacity) const = 0;

  Bytes capacity() const { return capacity_; }
  Bytes taken() const { return taken_; }
  Bytes highest() const { return highest_; }
  /// The same by the books of the class that implements it, where it keeps some of its own.
  virtual Bytes mapped_peak() const { return highest_; }
  std::int64_t times_taken() const { return times_taken_; }  ///< pieces taken and stretches mapped
  std::int64_t times_given() const { return times_given_; }  ///< pieces given back and stretches unmapped
  /// The smallest capacity under which something would have been granted that was not; empty when all was.
  std::optional<Bytes> enough_for_next() const { return enough_for_next_; }

 protected:
  DeviceMemory(const DeviceMemory& other, Bytes capacity);
  /// Of what a device takes and gives by itself: nobody asked here.
  void CountTaken(Bytes bytes);
  void CountGiven(Bytes bytes);

 private:
  virtual std::optional<std::uint64_t> DoTake(Bytes bytes) = 0;
  virtual void DoGive(std::uint64_t address, Bytes bytes) = 0;
  virtual std::optional<std::uint64_t> DoReserve(Bytes page) = 0;
  virtual void DoRelease(std::uint64_t address, Bytes page) = 0;
  virtual bool DoMap(std::uint64_t address, Bytes bytes) = 0;
  virtual void DoUnmap(std::uint64_t address, Bytes bytes) = 0;

  bool Fits(Bytes bytes);
  void Remember(Bytes enough);

  Bytes capacity_, taken_, highest_;
  std::int64_t times_taken_ = 0, times_given_ = 0;
  std::optional<Bytes> enough_for_next_;
};

/// `part` of a number of bytes, at most 1, in the way of PyTorch: by a double, cut off to whole bytes.
Bytes PartOf(double part, Bytes bytes);

/// Addresses that pretended memory has for pieces, whatever its capacity: more than any device.
inline constexpr Bytes kPretendAddresses(std::int64_t{1} << 47);

/// Memory that is none: numbers only, for the simulator. No two pieces or ranges have addresses in common.
std::unique_ptr<DeviceMemory> MakePretendMemory(Bytes capacity);

}  // namespace tidemark
