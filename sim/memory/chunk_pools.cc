// SPDX-License-Identifier: Apache-2.0
#include "sim/memory/chunk_pools.h"

#include <type_traits>

namespace tidemark {
namespace {

/// Unmapped chunks are ordered by address alone.
ChunkPools::Key KeyOf(const Chunk& chunk, ChunkId id) {
  return {chunk.state == Chunk::State::unmapped ? Bytes(0) : chunk.bytes, chunk.address, id};
}

}  // namespace

/// The orders' nodes lie in the copy's own memory.
ChunkPools::ChunkPools(const ChunkPools& other) : chunks_(other.chunks_), spare_(other.spare_) {
  for (const Pool& pool : other.pools_) {
    Pool& copy = pools_.emplace_back(&nodes_);
    copy.free = pool.free;
    copy.unmapped = pool.unmapped;
  }
}

bool ChunkPools::IsLive(std::uint32_t index) const {
  return index < chunks_.size() && chunks_[index].pool.valid() && chunks_[index].state == Chunk::State::live;
}

ChunkId ChunkPools::Create(PoolId pool, std::uint64_t address, Bytes bytes, std::uint64_t to_device) {
  ChunkId id{static_cast<std::uint32_t>(chunks_.size())};
  if (spare_.empty()) {
    chunks_.emplace_back();
  } else {
    id = spare_.back();
    spare_.pop_back();
  }
  Chunk& chunk = chunks_[id.index];
  chunk.address = address;
  chunk.to_device = to_device;
  chunk.bytes = bytes;
  chunk.pool = pool;
  return id;
}

void ChunkPools::Destroy(ChunkId id) {
  const Chunk& chunk = chunks_[id.index];
  TIDEMARK_CHECK(chunk.state == Chunk::State::live && !chunk.previous.valid() && !chunk.next.valid());
  Recycle(id);
}

bool ChunkPools::DestroyIfEmpty(ChunkId id) {
  const bool empty = chunks_[id.index].bytes == Bytes(0);
  if (empty) {
    Destroy(id);
  }
  return empty;
}

void ChunkPools::Take(ChunkId id) {
  Chunk& chunk = chunks_[id.index];
  OrderOf(chunk).erase(KeyOf(chunk, id));
  chunk.state = Chunk::State::live;
}

ChunkId ChunkPools::Cut(ChunkId id, Bytes front) {
  const Chunk whole = chunks_[id.index];
  TIDEMARK_CHECK(whole.state == Chunk::State::live && front > Bytes(0) && front < whole.bytes);
  const ChunkId tail = Create(whole.pool, whole.address + static_cast<std::uint64_t>(front.count()),
                              whole.bytes - front, whole.to_device);
  chunks_[tail.index].previous = id;
  chunks_[tail.index].next = whole.next;
  if (whole.next.valid()) {
    chunks_[whole.next.index].previous = tail;
  }
  chunks_[id.index].bytes = front;
  chunks_[id.index].next = tail;
  return tail;
}

void ChunkPools::Settle(ChunkId id, Chunk::State state, std::uint64_t clock) {
  Chunk& chunk = chunks_[id.index];
  TIDEMARK_CHECK(chunk.state == Chunk::State::live && state != Chunk::State::live);
  chunk.state = state;
  chunk.settled = clock;
  if (chunk.previous.valid() && chunks_[chunk.previous.index].state == state) {
    Swallow(id, chunk.previous);
  }
  if (chunk.next.valid() && chunks_[chunk.next.index].state == state) {
    Swallow(id, chunk.next);
  }
  OrderOf(chunk).insert(KeyOf(chunk, id));
}

void ChunkPools::Swallow(ChunkId id, ChunkId neighbour) {
  Chunk& kept = chunks_[id.index];
  const Chunk& gone = chunks_[neighbour.index];
  OrderOf(gone).erase(KeyOf(gone, neighbour));
  kept.bytes += gone.bytes;
  if (kept.previous == neighbour) {
    kept.address = gone.address;
    kept.previous = gone.previous;
    if (kept.previous.valid()) {
      chunks_[kept.previous.index].next = id;
    }
  } else {
    kept.next = gone.next;
    if (kept.next.valid()) {
      chunks_[kept.next.index].previous = id;
    }
  }
  Recycle(neighbour);
}

ChunkPools::Pool& ChunkPools::At(PoolId pool) {
  static_assert(std::is_nothrow_move_constructible_v<Pool>);  // else growing would copy the orders to another resource
  while (pools_.size() <= pool.index) {
    pools_.emplace_back(&nodes_);
  }
  return pools_[pool.index];
}

ChunkPools::Order& ChunkPools::OrderOf(const Chunk& chunk) {
  Pool& pool = At(chunk.pool);
  return chunk.state == Chunk::State::free ? pool.free : pool.unmapped;
}

void ChunkPools::Recycle(ChunkId id) {
  chunks_[id.index] = Chunk{};
  spare_.push_back(id);
}

}  // namespace tidemark
