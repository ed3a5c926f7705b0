// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "sim/memory/allocator.h"
#include "sim/memory/chunk_heap.h"

namespace tidemark {
namespace {

constexpr std::int64_t kRounding = 256;          // of requests: kMinAllocationSize
constexpr Bytes kMostUnused = Bytes(128 << 20);  // that a block may have before it is split
constexpr Bytes kRegionPage = Bytes(2 << 20);    // in which the region is mapped

/// One region of addresses for all streams and sizes, from which memory is mapped as far as it was ever used. Requests
/// are rounded to 256 bytes and get the smallest free block that fits, the lowest of these; where none fits, the
/// region's end. A block is split where at least half of it or 128 MiB would be left unused, else it is given whole.
/// Free neighbours merge. Nothing ever goes back to the device.
///
/// XLA's BFC allocator does this in a region that is preallocated (JAX: 75 % of the device, XLA_CLIENT_MEM_FRACTION),
/// with two differences. There the device shows the whole region as used from the start; here reserved is what the step
/// needs of it, so that it says how small the fraction may be. And there the unused end counts as a free block by its
/// size, which matters only where it is the smallest that fits. Without preallocation XLA takes regions that double
/// from 2 MiB on, and fragments more; that is not modelled. Bins make the search faster and decide nothing. No run of
/// XLA has been compared with this.
class ArenaAllocator final : public Allocator {
 public:
  ArenaAllocator(const AllocatorOptions& options, std::unique_ptr<DeviceMemory> device)
      : fraction_(options.memory_fraction), heap_(std::move(device)) {}
  ArenaAllocator(const ArenaAllocator& other, Bytes capacity)
      : Allocator(other),
        fraction_(other.fraction_),
        heap_(other.heap_, capacity),
        allocated_(other.allocated_),
        allocated_peak_(other.allocated_peak_),
        ooms_(other.ooms_) {}

  std::optional<Allocation> Allocate(Bytes request, std::uint32_t) override {
    TIDEMARK_CHECK(request >= Bytes(0));
    ChunkPools& chunks = heap_.chunks;
    if (request == Bytes(0)) {
      return Allocation{chunks.CreateEmpty(kPool).index, 0, request};
    }
    const Bytes bytes = Bytes(RoundUp(request.count(), kRounding));
    ChunkId chunk = FindHole(bytes);
    const bool at_end = !chunk.valid();
    if (at_end) {
      chunk = Grow(bytes);
    }
    if (!chunk.valid()) {
      ++ooms_;
      return std::nullopt;
    }
    chunks.Take(chunk);
    const Bytes unused = chunks[chunk].bytes - bytes;
    if (unused > Bytes(0) && (at_end || unused >= bytes || unused >= kMostUnused)) {
      chunks.Settle(chunks.Cut(chunk, bytes), Chunk::State::free);
    }
    chunks.SetRequested(chunk, request);
    allocated_ += chunks[chunk].bytes;
    allocated_peak_ = std::max(allocated_peak_, allocated_);
    return Allocation{chunk.index, chunks[chunk].device_address(), chunks[chunk].bytes};
  }

  void Free(std::uint32_t handle) override {
    TIDEMARK_CHECK(heap_.chunks.IsLive(handle));
    const ChunkId chunk{handle};
    if (heap_.chunks.DestroyIfEmpty(chunk)) {
      return;
    }
    allocated_ -= heap_.chunks[chunk].bytes;
    heap_.chunks.Settle(chunk, Chunk::State::free);
  }

  std::unique_ptr<Allocator> CopyOn(Bytes capacity) const override {
    return std::make_unique<ArenaAllocator>(*this, capacity);
  }

  Bytes allocated() const override { return allocated_; }
  Bytes allocated_peak() const override { return allocated_peak_; }
  const DeviceMemory& device() const override { return heap_.device(); }
  std::int64_t cache_flushes() const override { return 0; }
  std::vector<DeviceSegment> Segments() const override { return heap_.Segments(); }
  AllocatorStatistics Statistics() const override {
    AllocatorStatistics all = heap_.Statistics();
    all.allocated = allocated_;
    all.ooms = ooms_;
    return all;
  }

 private:
  static constexpr PoolId kPool{0};

  /// The free block before the region's unmapped end is no hole: it is part of the end.
  bool IsEnd(ChunkId id) const {
    const ChunkId next = heap_.chunks[id].next;
    return next.valid() && heap_.chunks[next].state == Chunk::State::unmapped;
  }

  ChunkId FindHole(Bytes bytes) {
    const ChunkPools::Order& free = heap_.chunks.free(kPool);
    auto found = free.lower_bound({bytes, 0, ChunkId{0}});
    if (found != free.end() && IsEnd(found->chunk)) {
      ++found;
    }
    return found == free.end() ? ChunkId() : found->chunk;
  }

  /// As nothing is unmapped but the end, this is where Expand finds room.
  ChunkId Grow(Bytes bytes) {
    if (fraction_ > 0) {
      const Bytes used = heap_.device().taken() - FreeAtEnd();
      const Bytes needed = Bytes(RoundUp((used + bytes).count(), kRegionPage.count()));
      if (!heap_.device().Covers(needed, [this](Bytes capacity) { return PartOf(fraction_, capacity); })) {
        return {};
      }
    }
    return heap_.Expand(kPool, kRegionPage, bytes);
  }

  Bytes FreeAtEnd() {
    const ChunkPools::Order& unmapped = heap_.chunks.unmapped(kPool);
    const ChunkId last = unmapped.empty() ? ChunkId() : heap_.chunks[unmapped.rbegin()->chunk].previous;
    return last.valid() && heap_.chunks[last].state == Chunk::State::free ? heap_.chunks[last].bytes : Bytes(0);
  }

  double fraction_;
  ChunkHeap heap_;
  Bytes allocated_, allocated_peak_;
  std::int64_t ooms_ = 0;
};

}  // namespace

std::unique_ptr<Allocator> MakeArenaAllocator(const AllocatorOptions& options, std::unique_ptr<DeviceMemory> device) {
  return std::make_unique<ArenaAllocator>(options, std::move(device));
}

}  // namespace tidemark
