// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "base/quantity.h"
#include "models/job/allocator_options.h"
#include "sim/memory/allocator_statistics.h"
#include "sim/memory/device_memory.h"
#include "sim/memory/device_segment.h"

namespace tidemark {

/// A piece of device memory an allocator handed out.
struct Allocation {
  std::uint32_t handle = 0;   ///< pass it back to Free; dense, reused
  std::uint64_t address = 0;  ///< within what DeviceMemory gave; 0 for a request of no bytes
  Bytes charged;  ///< what the allocator counts as allocated: rounded, or the whole block where it did not split
};

/// Turns tensor requests into device memory, as a framework's allocator does, the device being real or pretended.
/// Deterministic; knows nothing of time but what it is told.
class Allocator {
 public:
  virtual ~Allocator() = default;

  /// Memory for a tensor born on `stream`; empty when the device has none left, even after flushing every cached block.
  /// A request of no bytes is granted and charged nothing.
  virtual std::optional<Allocation> Allocate(Bytes request, std::uint32_t stream) = 0;
  virtual void Free(std::uint32_t handle) = 0;
  /// Whether a free takes its turn in a stream (cudaFreeAsync), behind what that has been given before. The device then
  /// has the memory again, and hands it out as it likes.
  virtual bool frees_in_stream_order() const { return false; }
  /// Whether the framework that it is from holds memory back that other streams use when it is freed (FreeInUse).
  virtual bool records_streams() const { return false; }
  /// Frees in the order of this stream, where that means something, instead of the stream of birth.
  virtual void FreeOn(std::uint32_t handle, std::uint32_t) { Free(handle); }
  /// Frees memory that work on other streams still uses (PyTorch: after record_stream). It is given to nobody else
  /// until UseEnds(ticket) has said that the last such use is over, or the allocator has waited for all of them rather
  /// than run out. Here it stays allocated until then; torch-caching counts it as free at once.
  virtual std::uint64_t FreeInUse(std::uint32_t handle);
  virtual void UseEnds(std::uint64_t ticket);
  /// All streams were waited for: what an allocator holds back or gives back only then.
  virtual void Synchronize();
  /// One that goes on from here, with the same handles, on a device of another capacity.
  virtual std::unique_ptr<Allocator> CopyOn(Bytes capacity) const = 0;

  virtual Bytes allocated() const = 0;  ///< charged bytes of live allocations
  virtual Bytes allocated_peak() const = 0;
  virtual const DeviceMemory& device() const = 0;  ///< what it took from the device: its reserved bytes
  /// How often everything cached was given back to try again; a vain try counts too (torch: num_alloc_retries).
  virtual std::int64_t cache_flushes() const = 0;
  virtual AllocatorStatistics Statistics() const = 0;
  /// What it has taken from the device; nothing where its inside is not known. Cost: linear in its parts.
  virtual std::vector<DeviceSegment> Segments() const { return {}; }

  Bytes reserved() const { return device().taken(); }
  Bytes reserved_peak() const { return device().highest(); }

 private:
  std::map<std::uint64_t, std::uint32_t> in_use_;  // handles by ticket
  std::uint64_t tickets_ = 0;
};

/// No rounding, no cache: allocated and reserved are the sum of requests. The lower bound of every allocator.
std::unique_ptr<Allocator> MakeExactAllocator(std::unique_ptr<DeviceMemory> device);

/// PyTorch's CUDACachingAllocator (c10/cuda/CUDACachingAllocator.cpp) with its knobs.
std::unique_ptr<Allocator> MakeTorchCachingAllocator(const AllocatorOptions& options,
                                                     std::unique_ptr<DeviceMemory> device);

/// One region that grows, best fit by (size, address): what JAX users have in XLA's BFC allocator with preallocation
/// (xla/tsl/framework/bfc_allocator.cc).
std::unique_ptr<Allocator> MakeArenaAllocator(const AllocatorOptions& options, std::unique_ptr<DeviceMemory> device);

/// A pool of cudaMallocAsync. Its inside is not public: see allocator_cuda_async.cc for what is known.
std::unique_ptr<Allocator> MakeCudaAsyncAllocator(const AllocatorOptions& options,
                                                  std::unique_ptr<DeviceMemory> device);

/// The kind that the options name, over a device's memory; over pretended memory of so many bytes.
std::unique_ptr<Allocator> MakeAllocator(const AllocatorOptions& options, std::unique_ptr<DeviceMemory> device);
std::unique_ptr<Allocator> MakeAllocator(const AllocatorOptions& options, Bytes capacity);

}  // namespace tidemark
