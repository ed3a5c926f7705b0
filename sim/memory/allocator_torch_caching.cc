// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "sim/memory/allocator.h"
#include "sim/memory/chunk_pools.h"

namespace tidemark {
namespace {

// The constants of c10/cuda/CUDACachingAllocator.cpp under its default settings.
constexpr Bytes kMinChunk = Bytes(512);
constexpr Bytes kSmallLimit = Bytes(1 << 20);  // a chunk up to here is small
constexpr Bytes kSmallSegment = Bytes(2 << 20);
constexpr Bytes kMediumSegment = Bytes(20 << 20);
constexpr Bytes kMediumLimit = Bytes(10 << 20);   // from here on a segment has the size of its request,
constexpr std::int64_t kLargeRounding = 2 << 20;  // rounded up to this

// An expandable segment's range of addresses: a whole number of pages of either size, and longer than any device.
// PyTorch reserves 9/8 of the device's memory; a range that runs out is followed by a second one, which costs it at
// most one more page than here.
constexpr std::uint64_t kRange = static_cast<std::uint64_t>(kMediumSegment.count()) << 32;

/// PyTorch's caching allocator. Requests are rounded to 512 bytes and served from the pool of their stream and size
/// class (small: up to 1 MiB): the best-fitting free chunk; else a new segment; else, after everything cached went back
/// to the device, a new segment again. A chunk that is much too large is split; a freed one merges with its free
/// neighbours.
///
/// With expandable segments a pool grows in place instead: it maps pages at the lowest address where free and unmapped
/// neighbours together are large enough, and flushing unmaps the whole pages inside free chunks.
///
/// Not here, because they are off by default: max_split_size_mb and with it the release of oversize chunks,
/// roundup_power2_divisions, garbage collection, memory fractions, private pools.
class TorchCachingAllocator final : public Allocator {
 public:
  TorchCachingAllocator(Bytes capacity, bool expandable) : device_(capacity), expandable_(expandable) {}

  std::optional<Allocation> Allocate(Bytes request, std::uint32_t stream) override;
  void Free(std::uint32_t handle) override;
  std::unique_ptr<Allocator> CopyOn(Bytes capacity) const override {
    auto copy = std::make_unique<TorchCachingAllocator>(*this);
    copy->device_ = device_.On(capacity);
    return copy;
  }

  Bytes allocated() const override { return allocated_; }
  Bytes allocated_peak() const override { return allocated_peak_; }
  const DeviceMemory& device() const override { return device_; }
  std::int64_t cache_flushes() const override { return cache_flushes_; }

 private:
  static PoolId PoolOf(std::uint32_t stream, Bytes bytes) { return {2 * stream + (bytes > kSmallLimit ? 1 : 0)}; }
  static bool IsSmall(PoolId pool) { return pool.index % 2 == 0; }
  static Bytes PageOf(PoolId pool) { return IsSmall(pool) ? kSmallSegment : kMediumSegment; }

  ChunkId FindFree(PoolId pool, Bytes bytes);
  ChunkId Grow(PoolId pool, Bytes bytes) { return expandable_ ? Expand(pool, bytes) : NewSegment(pool, bytes); }
  ChunkId NewSegment(PoolId pool, Bytes bytes);
  bool ShouldSplit(PoolId pool, Bytes remainder) const;
  void Flush();
  void ReleaseSegments(PoolId pool);

  Bytes ExpandableBytes(ChunkId id) const;
  ChunkId FindRoom(PoolId pool, Bytes bytes);
  ChunkId Expand(PoolId pool, Bytes bytes);
  bool MapFront(ChunkId id, Bytes bytes);
  void UnmapPages(ChunkId id);

  DeviceMemory device_;
  bool expandable_;
  ChunkPools chunks_;
  Bytes allocated_, allocated_peak_;
  std::int64_t cache_flushes_ = 0;
  std::uint64_t next_address_ = kRange;
  std::vector<std::uint64_t> spare_ranges_;  // expandable segments that were unmapped altogether
};

std::optional<Allocation> TorchCachingAllocator::Allocate(Bytes request, std::uint32_t stream) {
  TIDEMARK_CHECK(request >= Bytes(0));
  if (request == Bytes(0)) {  // never reaches the real allocator; here it needs a handle
    return Allocation{chunks_.Create(PoolOf(stream, request), 0, request).index, 0, request};
  }
  const Bytes bytes = Bytes(RoundUp(request.count(), kMinChunk.count()));
  const PoolId pool = PoolOf(stream, bytes);
  ChunkId chunk = FindFree(pool, bytes);
  if (!chunk.valid()) {
    chunk = Grow(pool, bytes);
  }
  if (!chunk.valid()) {
    Flush();
    chunk = Grow(pool, bytes);
  }
  if (!chunk.valid()) {
    return std::nullopt;
  }
  chunks_.Take(chunk);
  if (const Bytes remainder = chunks_[chunk].bytes - bytes; ShouldSplit(pool, remainder)) {
    chunks_.Settle(chunks_.Cut(chunk, bytes), Chunk::State::free);
  }
  const Chunk& given = chunks_[chunk];
  allocated_ += given.bytes;
  allocated_peak_ = std::max(allocated_peak_, allocated_);
  return Allocation{chunk.index, given.address, given.bytes};
}

void TorchCachingAllocator::Free(std::uint32_t handle) {
  TIDEMARK_CHECK(chunks_.IsLive(handle));
  const ChunkId chunk{handle};
  if (chunks_[chunk].bytes == Bytes(0)) {
    chunks_.Destroy(chunk);
    return;
  }
  allocated_ -= chunks_[chunk].bytes;
  chunks_.Settle(chunk, Chunk::State::free);
}

/// Best fit by (size, address). An expandable candidate counts with the room behind it: the walk goes on while the next
/// one's is strictly smaller, and so ends in a local minimum, as the original does.
ChunkId TorchCachingAllocator::FindFree(PoolId pool, Bytes bytes) {
  const ChunkPools::Order& free = chunks_.free(pool);
  auto found = free.lower_bound({bytes, 0, ChunkId{0}});
  if (found == free.end()) {
    return {};
  }
  if (expandable_) {
    for (auto next = std::next(found);
         next != free.end() && ExpandableBytes(next->chunk) < ExpandableBytes(found->chunk); ++next) {
      found = next;
    }
  }
  return found->chunk;
}

ChunkId TorchCachingAllocator::NewSegment(PoolId pool, Bytes bytes) {
  Bytes segment = IsSmall(pool) ? kSmallSegment : kMediumSegment;
  if (bytes >= kMediumLimit) {
    segment = Bytes(RoundUp(bytes.count(), kLargeRounding));
  }
  if (!device_.Take(segment)) {
    return {};
  }
  const ChunkId chunk = chunks_.Create(pool, next_address_, segment);
  next_address_ += static_cast<std::uint64_t>(segment.count());
  chunks_.Settle(chunk, Chunk::State::free);
  return chunk;
}

bool TorchCachingAllocator::ShouldSplit(PoolId pool, Bytes remainder) const {
  return IsSmall(pool) || expandable_ ? remainder >= kMinChunk : remainder > kSmallLimit;
}

/// Gives everything cached back to the device.
void TorchCachingAllocator::Flush() {
  ++cache_flushes_;
  for (PoolId pool{0}; pool.index < chunks_.pools(); ++pool.index) {
    ReleaseSegments(pool);
  }
}

/// Without expandable segments only a segment that is one free chunk can go; with them, every whole page in a free
/// chunk.
void TorchCachingAllocator::ReleaseSegments(PoolId pool) {
  std::vector<ChunkId> free;
  for (const ChunkPools::Key& key : chunks_.free(pool)) {
    free.push_back(key.chunk);
  }
  for (const ChunkId id : free) {
    const Chunk chunk = chunks_[id];
    if (expandable_) {
      UnmapPages(id);
    } else if (!chunk.previous.valid() && !chunk.next.valid()) {
      device_.Give(chunk.bytes);
      chunks_.Take(id);
      chunks_.Destroy(id);
    }
  }
}

/// A free chunk's size with the unmapped room behind it.
Bytes TorchCachingAllocator::ExpandableBytes(ChunkId id) const {
  const ChunkId next = chunks_[id].next;
  const bool room = next.valid() && chunks_[next].state == Chunk::State::unmapped;
  return chunks_[id].bytes + (room ? chunks_[next].bytes : Bytes(0));
}

/// The lowest free or unmapped chunk from which on neighbours that are not live reach `bytes`; a new range if there is
/// none.
ChunkId TorchCachingAllocator::FindRoom(PoolId pool, Bytes bytes) {
  const auto is_live = [&](ChunkId id) { return !id.valid() || chunks_[id].state == Chunk::State::live; };
  for (const ChunkPools::Key& key : chunks_.unmapped(pool)) {
    const ChunkId previous = chunks_[key.chunk].previous;
    const ChunkId first = is_live(previous) ? key.chunk : previous;
    Bytes room;
    for (ChunkId at = first; room < bytes && !is_live(at); at = chunks_[at].next) {
      room += chunks_[at].bytes;
    }
    if (room >= bytes) {
      return first;
    }
  }
  std::uint64_t address = next_address_;
  if (spare_ranges_.empty()) {
    TIDEMARK_CHECK(next_address_ + kRange > next_address_);
    next_address_ += kRange;
  } else {
    address = spare_ranges_.back();
    spare_ranges_.pop_back();
  }
  const ChunkId range = chunks_.Create(pool, address, Bytes(static_cast<std::int64_t>(kRange)));
  chunks_.Settle(range, Chunk::State::unmapped);
  return range;
}

/// Maps pages until a free chunk of at least `bytes` stands there. Where the device refuses midway, what was mapped
/// stays mapped and free, as in the original.
ChunkId TorchCachingAllocator::Expand(PoolId pool, Bytes bytes) {
  TIDEMARK_CHECK(bytes.count() <= static_cast<std::int64_t>(kRange));
  ChunkId chunk = FindRoom(pool, bytes);
  if (chunks_[chunk].state == Chunk::State::unmapped && !MapFront(chunk, std::min(bytes, chunks_[chunk].bytes))) {
    return {};
  }
  while (chunks_[chunk].bytes < bytes) {
    const ChunkId next = chunks_[chunk].next;
    if (!MapFront(next, std::min(bytes - chunks_[chunk].bytes, chunks_[next].bytes))) {
      return {};
    }
    chunk = next;  // which has swallowed the chunk before it
  }
  return chunk;
}

/// Maps the first pages of an unmapped chunk, enough for `bytes`, all or none. It then is free, with its free
/// neighbours.
bool TorchCachingAllocator::MapFront(ChunkId id, Bytes bytes) {
  const Chunk chunk = chunks_[id];
  const Bytes mapped = Bytes(RoundUp(bytes.count(), PageOf(chunk.pool).count()));
  if (!device_.Take(mapped)) {
    return false;
  }
  chunks_.Take(id);
  if (mapped < chunk.bytes) {
    chunks_.Settle(chunks_.Cut(id, mapped), Chunk::State::unmapped);
  }
  chunks_.Settle(id, Chunk::State::free);
  return true;
}

/// Unmaps the whole pages inside a free chunk; what is left before and after them stays free.
void TorchCachingAllocator::UnmapPages(ChunkId id) {
  const Chunk chunk = chunks_[id];
  const std::uint64_t page = static_cast<std::uint64_t>(PageOf(chunk.pool).count());
  const std::uint64_t begin = (chunk.address + page - 1) / page * page;
  const std::uint64_t end = chunk.end() / page * page;
  if (begin >= end) {
    return;
  }
  chunks_.Take(id);
  ChunkId pages = id;
  if (begin > chunk.address) {
    pages = chunks_.Cut(id, Bytes(static_cast<std::int64_t>(begin - chunk.address)));
    chunks_.Settle(id, Chunk::State::free);
  }
  const Bytes unmapped = Bytes(static_cast<std::int64_t>(end - begin));
  if (end < chunk.end()) {
    chunks_.Settle(chunks_.Cut(pages, unmapped), Chunk::State::free);
  }
  device_.Give(unmapped);
  chunks_.Settle(pages, Chunk::State::unmapped);
  if (chunks_[pages].bytes == Bytes(static_cast<std::int64_t>(kRange))) {
    spare_ranges_.push_back(chunks_[pages].address);
    chunks_.Take(pages);
    chunks_.Destroy(pages);
  }
}

}  // namespace

std::unique_ptr<Allocator> MakeTorchCachingAllocator(Bytes capacity, bool expandable_segments) {
  return std::make_unique<TorchCachingAllocator>(capacity, expandable_segments);
}

}  // namespace tidemark
