// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <compare>
#include <cstdint>
#include <memory_resource>
#include <set>
#include <vector>

#include "base/id.h"
#include "base/quantity.h"

namespace tidemark {

using ChunkId = Id<struct ChunkTag>;
using PoolId = Id<struct PoolTag>;  ///< a stream's small chunks, or its large ones

/// A stretch of addresses inside a segment (what PyTorch calls a block). Chunks of one segment form a chain in order of
/// address.
struct Chunk {
  enum class State : std::uint8_t { live, free, unmapped };

  std::uint64_t address = 0;    ///< by which chunks are ordered; not always the device's (ChunkHeap)
  std::uint64_t to_device = 0;  ///< added to it, modulo 2^64, it is
  Bytes bytes;
  ChunkId previous, next;
  PoolId pool;
  State state = State::live;
  std::uint64_t settled = 0;  ///< the caller's clock when it was settled
  Bytes requested;            ///< of a live one, for the caller's statistics

  std::uint64_t device_address() const { return address + to_device; }
  std::uint64_t end() const { return address + static_cast<std::uint64_t>(bytes.count()); }
};

/// The chunks of a caching allocator: chained to their neighbours, and per pool the free ones ordered by (size,
/// address) and the unmapped ones by address. A live chunk stands in no order, and only a live chunk can be cut. No two
/// neighbours are both free or both unmapped: settling merges them. Ids are dense and reused. Asks no device
/// for anything, and knows nothing of rounding.
class ChunkPools {
 public:
  struct Key {
    Bytes bytes;
    std::uint64_t address = 0;
    ChunkId chunk;
    friend auto operator<=>(const Key&, const Key&) = default;
  };
  using Order = std::pmr::set<Key>;

  ChunkPools() = default;
  ChunkPools(const ChunkPools& other);
  ChunkPools& operator=(const ChunkPools&) = delete;

  const Chunk& operator[](ChunkId id) const { return chunks_[id.index]; }
  bool IsLive(std::uint32_t index) const;

  /// A new live chunk without neighbours.
  ChunkId Create(PoolId pool, std::uint64_t address, Bytes bytes, std::uint64_t to_device = 0);
  /// Ends a live chunk that is the whole of its segment, or is in none.
  void Destroy(ChunkId id);
  /// A live chunk without bytes, the handle of a request for none; and its end, where `id` is one.
  ChunkId CreateEmpty(PoolId pool) { return Create(pool, 0, Bytes(0)); }
  bool DestroyIfEmpty(ChunkId id);

  /// Takes a free or unmapped chunk out of its order: it is live now.
  void Take(ChunkId id);
  /// Cuts a live chunk after `front` bytes. The front keeps the id; the tail is a new live chunk.
  ChunkId Cut(ChunkId id, Bytes front);
  /// Makes a live chunk free or unmapped, together with the neighbours that are so already. The whole keeps the id.
  void Settle(ChunkId id, Chunk::State state, std::uint64_t clock = 0);

  void SetRequested(ChunkId id, Bytes bytes) { chunks_[id.index].requested = bytes; }
  /// By id; one without a pool is not in use.
  const std::vector<Chunk>& all() const { return chunks_; }
  const Order& free(PoolId pool) { return At(pool).free; }
  const Order& unmapped(PoolId pool) { return At(pool).unmapped; }
  /// Pools with an index below this may hold chunks.
  std::uint32_t pools() const { return static_cast<std::uint32_t>(pools_.size()); }

 private:
  struct Pool {
    explicit Pool(std::pmr::memory_resource* nodes) : free(nodes), unmapped(nodes) {}
    Order free, unmapped;
  };

  Pool& At(PoolId pool);
  Order& OrderOf(const Chunk& chunk);
  void Swallow(ChunkId id, ChunkId neighbour);
  void Recycle(ChunkId id);

  std::pmr::unsynchronized_pool_resource nodes_;  // of the orders: entering one costs no call to the heap
  std::vector<Pool> pools_;
  std::vector<Chunk> chunks_;
  std::vector<ChunkId> spare_;
};

}  // namespace tidemark
