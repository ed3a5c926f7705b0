// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/chunk_heap.h"

#include <algorithm>
#include <optional>

namespace tidemark {

ChunkId ChunkHeap::NewSegment(PoolId pool, Bytes bytes) {
  const std::optional<std::uint64_t> address = device_->Take(bytes);
  if (!address) {
    return {};
  }
  lowest_piece_ -= static_cast<std::uint64_t>(bytes.count());
  const ChunkId chunk = chunks.Create(pool, lowest_piece_, bytes, *address - lowest_piece_);
  chunks.Settle(chunk, Chunk::State::free);
  return chunk;
}

void ChunkHeap::ReleaseSegment(ChunkId id) {
  const Chunk chunk = chunks[id];
  chunks.Take(id);
  chunks.Destroy(id);
  device_->Give(chunk.device_address(), chunk.bytes);
}

/// The lowest free or unmapped chunk from which on neighbours that are not live reach `bytes`.
ChunkId ChunkHeap::FindRoom(PoolId pool, Bytes page, Bytes bytes) {
  const auto is_live = [&](ChunkId id) { return !id.valid() || chunks[id].state == Chunk::State::live; };
  for (const ChunkPools::Key& key : chunks.unmapped(pool)) {
    const ChunkId previous = chunks[key.chunk].previous;
    const ChunkId first = is_live(previous) ? key.chunk : previous;
    Bytes room;
    for (ChunkId at = first; room < bytes && !is_live(at); at = chunks[at].next) {
      room += chunks[at].bytes;
    }
    if (room >= bytes) {
      return first;
    }
  }
  const std::optional<std::uint64_t> address = device_->Reserve(page);
  if (!address) {
    return {};
  }
  has_ranges_ = true;
  const ChunkId range = chunks.Create(pool, *address, device_->RangeOf(page));
  chunks.Settle(range, Chunk::State::unmapped);
  return range;
}

ChunkId ChunkHeap::Expand(PoolId pool, Bytes page, Bytes bytes) {
  if (bytes > device_->RangeOf(page)) {
    return {};
  }
  ChunkId chunk = FindRoom(pool, page, bytes);
  if (!chunk.valid()) {
    return {};
  }
  if (chunks[chunk].state == Chunk::State::unmapped && !MapFront(chunk, page, std::min(bytes, chunks[chunk].bytes))) {
    return {};
  }
  while (chunks[chunk].bytes < bytes) {
    const ChunkId next = chunks[chunk].next;
    if (!MapFront(next, page, std::min(bytes - chunks[chunk].bytes, chunks[next].bytes))) {
      return {};
    }
    chunk = next;  // which has swallowed the chunk before it
  }
  return chunk;
}

/// Maps the first pages of an unmapped chunk, enough for `bytes`, all or none. It then is free, with its free
/// neighbours.
bool ChunkHeap::MapFront(ChunkId id, Bytes page, Bytes bytes) {
  const Chunk chunk = chunks[id];
  const Bytes mapped = Bytes(RoundUp(bytes.count(), page.count()));
  if (!device_->Map(chunk.address, mapped)) {
    return false;
  }
  chunks.Take(id);
  if (mapped < chunk.bytes) {
    chunks.Settle(chunks.Cut(id, mapped), Chunk::State::unmapped);
  }
  chunks.Settle(id, Chunk::State::free);
  return true;
}

void ChunkHeap::UnmapPages(ChunkId id, Bytes page, Bytes most) {
  const Chunk chunk = chunks[id];
  const auto step = static_cast<std::uint64_t>(page.count());
  const std::uint64_t first = (chunk.address + step - 1) / step * step;
  const std::uint64_t end = chunk.end() / step * step;
  if (first >= end) {
    return;
  }
  const Bytes unmapped = std::min(most, Bytes(static_cast<std::int64_t>(end - first)));
  const std::uint64_t begin = end - static_cast<std::uint64_t>(unmapped.count());
  chunks.Take(id);
  ChunkId pages = id;
  if (begin > chunk.address) {
    pages = chunks.Cut(id, Bytes(static_cast<std::int64_t>(begin - chunk.address)));
    chunks.Settle(id, Chunk::State::free);
  }
  if (unmapped < chunks[pages].bytes) {
    chunks.Settle(chunks.Cut(pages, unmapped), Chunk::State::free);
  }
  device_->Unmap(begin, unmapped);
  chunks.Settle(pages, Chunk::State::unmapped);
  if (const Chunk whole = chunks[pages]; !whole.previous.valid() && !whole.next.valid()) {
    chunks.Take(pages);
    chunks.Destroy(pages);
    device_->Release(whole.address, page);
  }
}

AllocatorStatistics ChunkHeap::Statistics() const {
  AllocatorStatistics all;
  all.reserved = device_->taken();
  all.device_allocs = device_->times_taken();
  all.device_frees = device_->times_given();
  for (const Chunk& chunk : chunks.all()) {
    if (!chunk.pool.valid() || chunk.bytes == Bytes(0)) {
      continue;
    }
    const bool split = chunk.previous.valid() || chunk.next.valid();
    all.segments += !has_ranges_ && !chunk.previous.valid() ? 1 : 0;
    if (chunk.state == Chunk::State::live) {
      ++all.active;
      all.active_bytes += chunk.bytes;
      all.requested += chunk.requested;
    } else if (split && !has_ranges_) {
      ++all.inactive_split;
      all.inactive_split_bytes += chunk.bytes;
    }
  }
  all.allocations = all.active;
  return all;
}

std::vector<DeviceSegment> ChunkHeap::Segments() const {
  std::vector<DeviceSegment> segments;
  for (std::uint32_t index = 0; index < chunks.all().size(); ++index) {
    const Chunk& first = chunks[ChunkId{index}];
    if (!first.pool.valid() || first.previous.valid() || first.bytes == Bytes(0)) {
      continue;
    }
    DeviceSegment& segment = segments.emplace_back();
    for (ChunkId at{index}; at.valid(); at = chunks[at].next) {
      const Chunk& chunk = chunks[at];
      if (chunk.state != Chunk::State::unmapped) {
        const bool is_free = chunk.state == Chunk::State::free;
        segment.parts.push_back(
            {chunk.device_address(), chunk.bytes, is_free ? std::nullopt : std::optional(at.index)});
      }
    }
  }
  return segments;
}

}  // namespace tidemark
