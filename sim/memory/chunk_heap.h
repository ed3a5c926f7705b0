// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <vector>

#include "sim/memory/allocator_statistics.h"
#include "sim/memory/chunk_pools.h"
#include "sim/memory/device_memory.h"
#include "sim/memory/device_segment.h"

namespace tidemark {

/// Chunks and the device memory that they lie in: how a pool gets more of it, and how it gives some back. There are two
/// kinds of segment, as in DeviceMemory: a piece that is taken as a whole; and a range of addresses, in which chunks
/// grow in place by pages that are mapped.
///
/// Which of two equal chunks comes first must not depend on where the device puts memory: else what is predicted is not
/// what happens. So each piece lies right below the one that was taken before it, whatever their addresses on the
/// device: CUDA mostly hands them out from the top down, and of equal chunks PyTorch's allocator takes the lowest.
class ChunkHeap {
 public:
  explicit ChunkHeap(std::unique_ptr<DeviceMemory> device) : device_(std::move(device)) {}
  ChunkHeap(const ChunkHeap& other, Bytes capacity)
      : chunks(other.chunks),
        device_(other.device_->On(capacity)),
        lowest_piece_(other.lowest_piece_),
        has_ranges_(other.has_ranges_) {}

  /// A segment of its own: one free chunk, if the device has so much left.
  ChunkId NewSegment(PoolId pool, Bytes bytes);
  /// Gives a free chunk back to the device, which is the whole of its segment.
  void ReleaseSegment(ChunkId id);

  /// A free chunk of at least `bytes`, made by mapping pages at the lowest address of the pool's ranges where free and
  /// unmapped neighbours together are large enough; a new range if there is none. Where the device refuses midway, what
  /// was mapped stays mapped and free, and no chunk is returned. Every call for a pool gives the same `page`; a heap
  /// that has such pools has no segments of the other kind.
  ChunkId Expand(PoolId pool, Bytes page, Bytes bytes);
  /// Unmaps whole pages inside a free chunk of a range, all or the last `most` bytes of them. What is left before and
  /// after stays free.
  void UnmapPages(ChunkId id, Bytes page, Bytes most = Bytes(std::numeric_limits<std::int64_t>::max()));

  /// What can be counted here: live chunks as live allocations, pieces of segments that cannot go back, the device.
  AllocatorStatistics Statistics() const;
  std::vector<DeviceSegment> Segments() const;

  DeviceMemory& device() { return *device_; }
  const DeviceMemory& device() const { return *device_; }

  ChunkPools chunks;

 private:
  ChunkId FindRoom(PoolId pool, Bytes page, Bytes bytes);
  bool MapFront(ChunkId id, Bytes page, Bytes bytes);

  std::unique_ptr<DeviceMemory> device_;
  std::uint64_t lowest_piece_ = std::uint64_t{1} << 62;  // more than any device has lies below it
  bool has_ranges_ = false;                              // and then nothing else
};

}  // namespace tidemark
