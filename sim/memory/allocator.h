// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "base/quantity.h"
#include "models/job/job.h"

namespace tidemark {

/// A piece of device memory an allocator handed out.
struct Allocation {
  std::uint32_t handle = 0;  ///< pass it back to Free; dense, reused
  std::uint64_t address = 0;
  Bytes charged;  ///< what the allocator counts as allocated: rounded, or the whole block where it did not split
};

/// The device below an allocator, as a number of bytes that can run out. It also remembers how much more it would have
/// needed: a run whose requests were refused repeats exactly under every capacity below `enough_for_next()`.
class DeviceMemory {
 public:
  explicit DeviceMemory(Bytes capacity);

  /// Takes `bytes` if they fit into the capacity.
  bool Take(Bytes bytes);
  void Give(Bytes bytes);
  /// The same bytes taken from a device of another capacity, which has refused nothing yet.
  DeviceMemory On(Bytes capacity) const;

  Bytes taken() const { return taken_; }
  Bytes highest() const { return highest_; }
  /// The smallest capacity under which a request that was refused would have been granted; empty when none was refused.
  std::optional<Bytes> enough_for_next() const { return enough_for_next_; }

 private:
  Bytes capacity_, taken_, highest_;
  std::optional<Bytes> enough_for_next_;
};

/// Turns tensor requests into device memory, as a framework's allocator does. Deterministic, with addresses of its own
/// making; knows nothing of time but what it is told (an event-delayed free is the caller's business).
class Allocator {
 public:
  virtual ~Allocator() = default;

  /// Memory for a tensor born on `stream`; empty when the device has none left, even after flushing every cached block.
  /// A request of no bytes is granted and charged nothing.
  virtual std::optional<Allocation> Allocate(Bytes request, std::uint32_t stream) = 0;
  virtual void Free(std::uint32_t handle) = 0;
  /// One that goes on from here, with the same handles, on a device of another capacity.
  virtual std::unique_ptr<Allocator> CopyOn(Bytes capacity) const = 0;

  virtual Bytes allocated() const = 0;  ///< charged bytes of live allocations
  virtual Bytes allocated_peak() const = 0;
  virtual const DeviceMemory& device() const = 0;  ///< what it took from the device: its reserved bytes
  /// How often everything cached was given back to try again; a vain try counts too (torch: num_alloc_retries).
  virtual std::int64_t cache_flushes() const = 0;

  Bytes reserved() const { return device().taken(); }
  Bytes reserved_peak() const { return device().highest(); }
};

/// No rounding, no cache: allocated and reserved are the sum of requests. The lower bound of every allocator.
std::unique_ptr<Allocator> MakeExactAllocator(Bytes capacity);

/// PyTorch's CUDACachingAllocator (c10/cuda/CUDACachingAllocator.cpp) with its default settings: 512 B rounding, 2 MiB
/// and 20 MiB segments, best fit by (stream, size, address), split and merge, flush and retry; expandable segments on
/// request.
std::unique_ptr<Allocator> MakeTorchCachingAllocator(Bytes capacity, bool expandable_segments);

std::unique_ptr<Allocator> MakeAllocator(const AllocatorOptions& options, Bytes capacity);

}  // namespace tidemark
