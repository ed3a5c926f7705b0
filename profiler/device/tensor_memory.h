// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/quantity.h"
#include "models/job/allocator_options.h"
#include "profiler/capture/annotations.h"
#include "profiler/device/device.h"
#include "sim/memory/allocator.h"

namespace tidemark {

/// What is filled with 0xff, which as a floating number of any width is a NaN: what was never written, or was freed too
/// early, shows in the numbers.
enum class Poison : std::uint8_t {
  everything,  ///< what is handed out, and what is freed
  nothing,     ///< times are those of the work alone
};

/// The only source of memory for tensors: an allocator over memory that can be read and written. What was freed still
/// holds 0xff when it is handed out again, unless the device had it meanwhile: a byte is written once per tensor, not
/// twice.
class TensorMemory {
 public:
  /// `allocator` lies over memory of `device`, which outlives this.
  TensorMemory(std::unique_ptr<Allocator> allocator, Device& device)
      : allocator_(std::move(allocator)), device_(device) {}

  struct Piece {
    void* data = nullptr;
    Bytes bytes;  ///< as requested
    std::uint32_t handle = 0;
    std::uint32_t stream = 0;  ///< that it was born on
  };

  /// From now on; at first everything is. Nothing runs meanwhile (Device::Synchronize).
  void Fill(Poison what);

  /// Memory for a tensor born on `stream`; empty when the device has no more.
  std::optional<Piece> Allocate(Bytes bytes, std::uint32_t stream);
  void Free(const Piece& piece);
  /// While work of other streams may still use it, up to these marks, its own stream's among them: whoever gets the
  /// memory next waits for them on its stream, and nobody else. Only then is it filled. Of an allocator that frees in
  /// the order of streams the driver sees to that: the free waits for the marks, on a stream that does nothing else.
  void FreeInUse(const Piece& piece, std::vector<Device::Mark> uses);
  /// Everything that ran has ended: a step is done.
  void Synchronize();

  const Allocator& allocator() const { return *allocator_; }

  /// What is handed out at an address: as requested, and what the allocator counts for it.
  struct Room {
    Bytes bytes, charged;
  };
  const std::map<std::uint64_t, Room>& live() const { return live_; }
  Bytes live_bytes() const { return live_bytes_; }  ///< as requested
  /// Calls `look` after memory was handed out. What was poisoned has been touched.
  void AfterAllocating(std::function<void()> look) { after_allocating_ = std::move(look); }
  /// Tells where tensors lie. It must outlive this.
  void AnnounceTo(Annotations* annotations) { annotations_ = annotations; }

 private:
  /// A stretch that belongs to nobody and needs no 0xff, up to `end`: it holds them, or will when `stream` comes there,
  /// or nothing is poisoned.
  struct Left {
    std::uint64_t end = 0;
    std::uint32_t stream = 0;
  };

  /// A freed stretch that work still uses until the streams have come to these marks.
  struct InUse {
    std::uint64_t end = 0;
    std::vector<Device::Mark> uses;
  };

  void GiveBack(const Piece& piece, std::uint32_t stream);
  void WaitForUses(std::uint64_t begin, std::uint64_t end, std::uint32_t stream);
  void SetToNaN(std::uint32_t stream, void* at, Bytes bytes);
  void TakeWhatWasLeft(std::uint64_t begin, std::uint64_t end, std::uint32_t stream);
  void ForgetWhatTheDeviceTook();

  std::unique_ptr<Allocator> allocator_;
  Device& device_;
  Poison poison_ = Poison::everything;
  std::map<std::uint64_t, Left> left_;     ///< by begin
  std::map<std::uint64_t, InUse> in_use_;  ///< by begin
  std::int64_t times_given_ = 0;           ///< to the device, when these two were last right
  std::map<std::uint64_t, Room> live_;
  Bytes live_bytes_;
  std::function<void()> after_allocating_;
  Annotations* annotations_ = nullptr;
};

}  // namespace tidemark
