// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <functional>
#include <limits>
#include <vector>

#include "sim/memory/allocator.h"
#include "sim/memory/chunk_heap.h"
#include "sim/memory/roundup.h"

namespace tidemark {
namespace {

// The constants of c10/core/AllocatorConfig.h.
constexpr Bytes kMinChunk = Bytes(512);
constexpr Bytes kSmallLimit = Bytes(1 << 20);  // a chunk up to here is small
constexpr Bytes kSmallSegment = Bytes(2 << 20);
constexpr Bytes kMediumLimit = Bytes(10 << 20);   // from here on a segment has the size of its request,
constexpr std::int64_t kLargeRounding = 2 << 20;  // rounded up to this
constexpr Bytes kNoLimit = Bytes(std::numeric_limits<std::int64_t>::max());

/// PyTorch's caching allocator (c10/cuda/CUDACachingAllocator.cpp of 2025; large_segment_size and
/// max_non_split_rounding as in c10/core/AllocatorConfig.h of 2026). Requests are rounded and served from the pool of
/// their stream and size class (small: up to 1 MiB): the best-fitting free chunk; else a new segment; else, after some
/// or all of what is cached went back to the device, a new segment again. A chunk that is much too large is split; a
/// freed one merges with its free neighbours.
///
/// With expandable segments a pool grows in place instead (ChunkHeap::Expand), and a flush unmaps the whole pages
/// inside free chunks.
///
/// With max_split, chunks of that size and more ("oversize") are never split, and serve only requests of that size and
/// more that leave less than max_non_split_rounding unused.
///
/// Not here: private pools (CUDA graphs, MemPool), and the callbacks that free memory before a new segment.
class TorchCachingAllocator final : public Allocator {
 public:
  TorchCachingAllocator(const AllocatorOptions& options, std::unique_ptr<DeviceMemory> device)
      : options_(options),
        max_split_(options.max_split > Bytes(0) ? options.max_split : kNoLimit),
        heap_(std::move(device)) {}
  TorchCachingAllocator(const TorchCachingAllocator& other, Bytes capacity)
      : Allocator(other),
        options_(other.options_),
        max_split_(other.max_split_),
        heap_(other.heap_, capacity),
        allocated_(other.allocated_),
        allocated_peak_(other.allocated_peak_),
        flushes_(other.flushes_),
        ooms_(other.ooms_),
        large_searches_(other.large_searches_),
        in_use_(other.in_use_),
        ended_(other.ended_),
        tickets_(other.tickets_) {}

  std::optional<Allocation> Allocate(Bytes request, std::uint32_t stream) override;
  void Free(std::uint32_t handle) override;
  std::uint64_t FreeInUse(std::uint32_t handle) override;
  bool records_streams() const override { return true; }
  void UseEnds(std::uint64_t ticket) override;
  void Synchronize() override;
  std::unique_ptr<Allocator> CopyOn(Bytes capacity) const override {
    return std::make_unique<TorchCachingAllocator>(*this, capacity);
  }

  Bytes allocated() const override { return allocated_; }
  Bytes allocated_peak() const override { return allocated_peak_; }
  const DeviceMemory& device() const override { return heap_.device(); }
  std::int64_t cache_flushes() const override { return flushes_; }
  AllocatorStatistics Statistics() const override;
  std::vector<DeviceSegment> Segments() const override { return heap_.Segments(); }

 private:
  static PoolId PoolOf(std::uint32_t stream, Bytes bytes) { return {2 * stream + (bytes > kSmallLimit ? 1 : 0)}; }
  static bool IsSmall(PoolId pool) { return pool.index % 2 == 0; }
  Bytes PageOf(PoolId pool) const { return IsSmall(pool) ? kSmallSegment : options_.large_segment; }
  bool IsWhole(ChunkId id) const { return !heap_.chunks[id].previous.valid() && !heap_.chunks[id].next.valid(); }
  bool CollectsGarbage() const { return options_.memory_fraction > 0 && options_.garbage_collection_threshold > 0; }
  /// Of the device's memory the part that this process may have, times `threshold`.
  std::function<Bytes(Bytes)> Allowed(double threshold) const;

  ChunkId FindFree(PoolId pool, Bytes bytes);
  ChunkId GetMore(PoolId pool, Bytes bytes);
  ChunkId Grow(PoolId pool, Bytes bytes);
  Bytes SegmentFor(PoolId pool, Bytes bytes) const;
  bool ShouldSplit(PoolId pool, Bytes bytes, Bytes remainder) const;
  void Cache(ChunkId id) { heap_.chunks.Settle(id, Chunk::State::free, large_searches_); }
  void EndUse(std::uint64_t ticket);

  void CollectGarbage();
  bool ReleaseOversize(PoolId pool, Bytes bytes);
  void Flush();
  void ReleaseSegments(PoolId pool);
  Bytes ExpandableBytes(ChunkId id) const;

  AllocatorOptions options_;
  Bytes max_split_;
  ChunkHeap heap_;
  Bytes allocated_, allocated_peak_;
  std::int64_t flushes_ = 0, ooms_ = 0;
  std::uint64_t large_searches_ = 0;               // for free large chunks: the clock of garbage collection
  std::map<std::uint64_t, std::uint32_t> in_use_;  // freed chunks by ticket
  std::vector<std::uint64_t> ended_;               // uses whose end the next Allocate finds
  std::uint64_t tickets_ = 0;
};

std::optional<Allocation> TorchCachingAllocator::Allocate(Bytes request, std::uint32_t stream) {
  TIDEMARK_CHECK(request >= Bytes(0));
  for (const std::uint64_t ticket : ended_) {
    EndUse(ticket);
  }
  ended_.clear();
  ChunkPools& chunks = heap_.chunks;
  if (request == Bytes(0)) {  // never reaches the real allocator; here it needs a handle
    return Allocation{chunks.CreateEmpty(PoolOf(stream, request)).index, 0, request};
  }
  const Bytes bytes = RoundedRequest(options_.roundup_power2_divisions, request);
  const PoolId pool = PoolOf(stream, bytes);
  ChunkId chunk = FindFree(pool, bytes);
  if (!chunk.valid()) {
    chunk = GetMore(pool, bytes);
  }
  if (!chunk.valid()) {
    ++ooms_;
    return std::nullopt;
  }
  chunks.Take(chunk);
  if (const Bytes remainder = chunks[chunk].bytes - bytes; ShouldSplit(pool, bytes, remainder)) {
    Cache(chunks.Cut(chunk, bytes));
  }
  chunks.SetRequested(chunk, request);
  const Chunk& given = chunks[chunk];
  allocated_ += given.bytes;
  allocated_peak_ = std::max(allocated_peak_, allocated_);
  return Allocation{chunk.index, given.device_address(), given.bytes};
}

void TorchCachingAllocator::Free(std::uint32_t handle) {
  TIDEMARK_CHECK(heap_.chunks.IsLive(handle));
  const ChunkId chunk{handle};
  if (heap_.chunks.DestroyIfEmpty(chunk)) {
    return;
  }
  allocated_ -= heap_.chunks[chunk].bytes;
  Cache(chunk);
}

/// The chunk stays live, that is, out of the free ones' order.
std::uint64_t TorchCachingAllocator::FreeInUse(std::uint32_t handle) {
  TIDEMARK_CHECK(heap_.chunks.IsLive(handle));
  allocated_ -= heap_.chunks[ChunkId{handle}].bytes;
  in_use_.emplace(++tickets_, handle);
  return tickets_;
}

void TorchCachingAllocator::UseEnds(std::uint64_t ticket) { ended_.push_back(ticket); }

void TorchCachingAllocator::Synchronize() {
  for (const auto& [ticket, handle] : in_use_) {
    ended_.push_back(ticket);
  }
}

void TorchCachingAllocator::EndUse(std::uint64_t ticket) {
  const auto found = in_use_.find(ticket);
  if (found == in_use_.end()) {
    return;  // waited for meanwhile
  }
  const ChunkId chunk{found->second};
  in_use_.erase(found);
  if (!heap_.chunks.DestroyIfEmpty(chunk)) {
    Cache(chunk);
  }
}

std::function<Bytes(Bytes)> TorchCachingAllocator::Allowed(double threshold) const {
  return [threshold, fraction = options_.memory_fraction](Bytes capacity) {
    return PartOf(threshold, PartOf(fraction, capacity));
  };
}

/// Best fit by (size, address). An expandable candidate counts with the room behind it: the walk goes on while the next
/// one's is strictly smaller, and so ends in a local minimum, as the original does. Nor does it look further where
/// max_split rejects what it found.
ChunkId TorchCachingAllocator::FindFree(PoolId pool, Bytes bytes) {
  large_searches_ += !IsSmall(pool) && CollectsGarbage() ? 1 : 0;
  const ChunkPools::Order& free = heap_.chunks.free(pool);
  auto found = free.lower_bound({bytes, 0, ChunkId{0}});
  if (found == free.end()) {
    return {};
  }
  if (options_.expandable_segments) {
    for (auto next = std::next(found);
         next != free.end() && ExpandableBytes(next->chunk) < ExpandableBytes(found->chunk); ++next) {
      found = next;
    }
  }
  const bool too_large =
      bytes < max_split_ ? found->bytes >= max_split_ : found->bytes - bytes >= options_.max_non_split_rounding;
  return too_large ? ChunkId() : found->chunk;
}

/// After a vain search: more memory from the device, for which ever more of what is cached is given back.
ChunkId TorchCachingAllocator::GetMore(PoolId pool, Bytes bytes) {
  if (CollectsGarbage()) {
    CollectGarbage();
  }
  ChunkId chunk = Grow(pool, bytes);
  if (!chunk.valid() && ReleaseOversize(pool, bytes)) {
    chunk = Grow(pool, bytes);
  }
  if (!chunk.valid()) {
    Flush();
    chunk = Grow(pool, bytes);
  }
  return chunk;
}

Bytes TorchCachingAllocator::SegmentFor(PoolId pool, Bytes bytes) const {
  return IsSmall(pool)          ? kSmallSegment
         : bytes < kMediumLimit ? options_.large_segment
                                : Bytes(RoundUp(bytes.count(), kLargeRounding));
}

/// A segment, or pages. A fraction of the device is checked with the size of the segment even where pages follow.
ChunkId TorchCachingAllocator::Grow(PoolId pool, Bytes bytes) {
  DeviceMemory& device = heap_.device();
  const Bytes segment = SegmentFor(pool, bytes);
  if (options_.memory_fraction > 0 && !device.Covers(device.taken() + segment, Allowed(1))) {
    return {};
  }
  return options_.expandable_segments ? heap_.Expand(pool, PageOf(pool), bytes) : heap_.NewSegment(pool, segment);
}

bool TorchCachingAllocator::ShouldSplit(PoolId pool, Bytes bytes, Bytes remainder) const {
  return IsSmall(pool) || options_.expandable_segments ? remainder >= kMinChunk
                                                       : bytes < max_split_ && remainder > kSmallLimit;
}

/// Where more than the threshold is reserved, gives whole large segments back until it no longer is: those first that
/// have been cached for at least the mean number of searches.
void TorchCachingAllocator::CollectGarbage() {
  const Bytes taken = heap_.device().taken();
  const auto threshold = Allowed(options_.garbage_collection_threshold);
  if (heap_.device().Covers(taken, threshold)) {
    return;
  }
  std::vector<ChunkId> cached;
  for (PoolId pool{1}; pool.index < heap_.chunks.pools(); pool.index += 2) {
    for (const ChunkPools::Key& key : heap_.chunks.free(pool)) {
      if (!options_.expandable_segments && IsWhole(key.chunk)) {
        cached.push_back(key.chunk);
      }
    }
  }
  const auto age = [&](ChunkId id) { return large_searches_ - heap_.chunks[id].settled; };
  bool released = true;
  while (released && !cached.empty() && !heap_.device().Covers(heap_.device().taken(), threshold)) {
    std::uint64_t total = 0;
    for (const ChunkId id : cached) {
      total += age(id);
    }
    const double mean = static_cast<double>(total) / static_cast<double>(cached.size());
    const std::size_t before = cached.size();
    std::erase_if(cached, [&](ChunkId id) {
      const bool old = static_cast<double>(age(id)) >= mean;
      if (old) {
        heap_.ReleaseSegment(id);
      }
      return old;
    });
    released = cached.size() < before;
  }
}

/// With max_split, one cached chunk of this stream that is large enough; or several oversize ones, from the largest
/// down. Whether that came to enough.
bool TorchCachingAllocator::ReleaseOversize(PoolId pool, Bytes bytes) {
  if (max_split_ == kNoLimit || options_.expandable_segments) {
    return false;
  }
  const ChunkPools::Order& free = heap_.chunks.free(pool);
  const Bytes need = std::max(bytes, max_split_);
  if (const auto found = free.lower_bound({need, 0, ChunkId{0}}); found != free.end()) {
    heap_.ReleaseSegment(found->chunk);
    return true;
  }
  Bytes released;
  while (released < need && !free.empty() && free.rbegin()->bytes >= max_split_) {
    released += free.rbegin()->bytes;
    heap_.ReleaseSegment(free.rbegin()->chunk);
  }
  return released >= need;
}

/// Waits for all uses of freed memory, and gives everything cached back to the device.
void TorchCachingAllocator::Flush() {
  ++flushes_;
  while (!in_use_.empty()) {
    EndUse(in_use_.begin()->first);
  }
  for (PoolId pool{0}; pool.index < heap_.chunks.pools(); ++pool.index) {
    ReleaseSegments(pool);
  }
}

/// Without expandable segments only a segment that is one free chunk can go; with them, every whole page in a free
/// chunk.
void TorchCachingAllocator::ReleaseSegments(PoolId pool) {
  std::vector<ChunkId> free;
  for (const ChunkPools::Key& key : heap_.chunks.free(pool)) {
    free.push_back(key.chunk);
  }
  for (const ChunkId id : free) {
    if (options_.expandable_segments) {
      heap_.UnmapPages(id, PageOf(pool));
    } else if (IsWhole(id)) {
      heap_.ReleaseSegment(id);
    }
  }
}

/// A free chunk's size with the unmapped room behind it.
Bytes TorchCachingAllocator::ExpandableBytes(ChunkId id) const {
  const ChunkPools& chunks = heap_.chunks;
  const ChunkId next = chunks[id].next;
  const bool room = next.valid() && chunks[next].state == Chunk::State::unmapped;
  return chunks[id].bytes + (room ? chunks[next].bytes : Bytes(0));
}

AllocatorStatistics TorchCachingAllocator::Statistics() const {
  AllocatorStatistics all = heap_.Statistics();
  for (const auto& [ticket, handle] : in_use_) {
    all.allocations -= heap_.chunks[ChunkId{handle}].bytes > Bytes(0) ? 1 : 0;
  }
  all.allocated = allocated_;
  all.alloc_retries = all.syncs = flushes_;
  all.ooms = ooms_;
  return all;
}

}  // namespace

std::unique_ptr<Allocator> MakeTorchCachingAllocator(const AllocatorOptions& options,
                                                     std::unique_ptr<DeviceMemory> device) {
  return std::make_unique<TorchCachingAllocator>(options, std::move(device));
}

}  // namespace tidemark
