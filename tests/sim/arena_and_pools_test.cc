// SPDX-License-Identifier: Apache-2.0
// The arena and the pools of cudaMallocAsync. Vectors are worked by hand from the rules that their files state.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <vector>

#include "sim/memory/allocator.h"
#include "tests/sim/allocation_log.h"

namespace tidemark::arena_and_pools_test {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr Bytes kUnlimited = Bytes(std::numeric_limits<std::int64_t>::max());

Bytes MiB(std::int64_t count) { return Bytes(count * kMiB); }

std::unique_ptr<Allocator> Arena(Bytes capacity = kUnlimited) {
  return MakeAllocator({.kind = AllocatorKind::arena}, capacity);
}
std::unique_ptr<Allocator> Pool(Bytes capacity = kUnlimited, Bytes threshold = Bytes(0)) {
  return MakeAllocator({.kind = AllocatorKind::cuda_async, .release_threshold = threshold}, capacity);
}

Allocation Grant(Allocator& allocator, Bytes bytes, std::uint32_t stream = 0) {
  const std::optional<Allocation> given = allocator.Allocate(bytes, stream);
  EXPECT_TRUE(given.has_value()) << bytes.count() << " bytes were refused";
  return given.value_or(Allocation{});
}

TEST(Arena, RoundsTo256BytesAndPutsOneBehindTheOther) {
  const auto arena = Arena();
  const Allocation first = Grant(*arena, Bytes(1));
  const Allocation second = Grant(*arena, Bytes(257), 7);
  EXPECT_EQ(first.charged, Bytes(256));
  EXPECT_EQ(second.charged, Bytes(512));
  EXPECT_EQ(second.address, first.address + 256) << "streams share the region";
  EXPECT_EQ(arena->allocated(), Bytes(768));
  EXPECT_EQ(arena->reserved(), MiB(2));
}

TEST(Arena, GivesAHoleWholeWhereLessThanHalfOfItWouldBeLeft) {
  const auto arena = Arena();
  const Allocation hole = Grant(*arena, MiB(10));
  Grant(*arena, MiB(1));
  arena->Free(hole.handle);
  // 10 MiB are less than twice 5 MiB and 256 bytes: whole.
  const Allocation whole = Grant(*arena, MiB(5) + Bytes(256));
  EXPECT_EQ(whole.address, hole.address);
  EXPECT_EQ(whole.charged, MiB(10));
  arena->Free(whole.handle);
  EXPECT_EQ(Grant(*arena, MiB(5)).charged, MiB(5));
  EXPECT_EQ(Grant(*arena, MiB(5)).address, hole.address + static_cast<std::uint64_t>(5 * kMiB));
}

TEST(Arena, SplitsAHoleWhere128MiBWouldBeLeft) {
  const auto arena = Arena();
  const Allocation hole = Grant(*arena, MiB(400));
  Grant(*arena, MiB(1));
  arena->Free(hole.handle);
  const Allocation whole = Grant(*arena, MiB(272) + Bytes(256));  // 256 bytes less than 128 MiB are left
  EXPECT_EQ(whole.charged, MiB(400));
  arena->Free(whole.handle);
  EXPECT_EQ(Grant(*arena, MiB(272)).charged, MiB(272));
}

TEST(Arena, TakesTheSmallestHoleThenTheLowestThenTheEnd) {
  const auto arena = Arena();
  std::vector<Allocation> given;
  for (const std::int64_t size : {8, 1, 6, 1, 6, 1}) {
    given.push_back(Grant(*arena, MiB(size)));
  }
  for (const std::size_t i : {0U, 2U, 4U}) {
    arena->Free(given[i].handle);
  }
  EXPECT_EQ(Grant(*arena, MiB(6)).address, given[2].address);
  EXPECT_EQ(Grant(*arena, MiB(6)).address, given[4].address);
  EXPECT_EQ(Grant(*arena, MiB(6)).address, given[0].address);
  EXPECT_EQ(Grant(*arena, MiB(6)).address, given[5].address + kMiB);
  EXPECT_EQ(arena->reserved(), MiB(30));  // 23 + 6, in pages of 2 MiB
}

TEST(Arena, UsesAHoleRatherThanAFreedEnd) {
  const auto arena = Arena();
  const Allocation hole = Grant(*arena, MiB(8));
  Grant(*arena, MiB(1));
  const Allocation end = Grant(*arena, MiB(6));
  arena->Free(hole.handle);
  arena->Free(end.handle);  // of the region's end again, which is larger than every hole
  EXPECT_EQ(Grant(*arena, MiB(6)).address, hole.address);
  EXPECT_EQ(Grant(*arena, MiB(7)).address, end.address);
}

TEST(Arena, NeverGivesBackAndMergesNeighbours) {
  const auto arena = Arena(MiB(20));
  const Allocation first = Grant(*arena, MiB(10));
  const Allocation second = Grant(*arena, MiB(10));
  EXPECT_FALSE(arena->Allocate(Bytes(1), 0).has_value());
  arena->Free(first.handle);
  arena->Free(second.handle);
  EXPECT_EQ(arena->reserved(), MiB(20));
  EXPECT_EQ(Grant(*arena, MiB(20)).address, first.address);
  EXPECT_EQ(arena->cache_flushes(), 0);
  EXPECT_EQ(arena->Statistics().ooms, 1);
}

TEST(Arena, StaysWithinItsFraction) {
  const auto arena = MakeAllocator({.kind = AllocatorKind::arena, .memory_fraction = 0.75}, MiB(80));
  Grant(*arena, MiB(59));
  EXPECT_FALSE(arena->Allocate(MiB(2), 0).has_value());
  Grant(*arena, MiB(1));
  EXPECT_FALSE(arena->Allocate(Bytes(1), 0).has_value());
  EXPECT_EQ(arena->reserved(), MiB(60));
}

/// The arena once more, by a walk over live tensors: holes are what lies between them.
class NaiveArena {
 public:
  explicit NaiveArena(std::int64_t capacity) : capacity_(capacity / (2 * kMiB) * (2 * kMiB)) {}

  std::optional<std::pair<std::int64_t, std::int64_t>> Allocate(std::uint32_t id, std::int64_t request) {
    const std::int64_t need = (request + 255) / 256 * 256;
    std::int64_t place = -1, size = 0, end = 0;
    for (const auto& [begin, tensor] : live_) {
      if (const std::int64_t hole = begin - end; hole >= need && (place < 0 || hole < size)) {
        place = end;
        size = hole;
      }
      end = begin + tensor.second;
    }
    std::int64_t charged = need;
    if (place < 0) {
      if (end + need > capacity_) {
        return std::nullopt;
      }
      place = end;
    } else if (size < 2 * need && size - need < 128 * kMiB) {
      charged = size;
    }
    live_[place] = {id, charged};
    return std::pair(place, charged);
  }

  void Free(std::uint32_t id) {
    std::erase_if(live_, [&](const auto& tensor) { return tensor.second.first == id; });
  }

 private:
  std::int64_t capacity_;
  std::map<std::int64_t, std::pair<std::uint32_t, std::int64_t>> live_;  // begin -> id, bytes
};

TEST(ArenaProperty, AgreesWithANaiveModelOnRandomRequests) {
  int refused = 0, whole = 0;
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed);
    const Bytes capacity = Bytes(dice.Number(20 * kMiB, 300 * kMiB));
    const auto arena = Arena(capacity);
    NaiveArena naive(capacity.count());
    std::map<std::uint32_t, std::uint32_t> handles;
    std::optional<std::uint64_t> base;
    for (const Request& request : RandomLog(seed, 200)) {
      if (!request.alloc) {
        naive.Free(request.id);
        if (const auto gone = handles.find(request.id); gone != handles.end()) {
          arena->Free(gone->second);
          handles.erase(gone);
        }
        continue;
      }
      const auto given = arena->Allocate(request.bytes, request.stream);
      const auto expected = naive.Allocate(request.id, request.bytes.count());
      ASSERT_EQ(given.has_value(), expected.has_value());
      refused += given ? 0 : 1;
      if (given) {
        base = base.value_or(given->address);
        ASSERT_EQ(given->address - *base, static_cast<std::uint64_t>(expected->first));
        ASSERT_EQ(given->charged, Bytes(expected->second));
        whole += given->charged > request.bytes + Bytes(256) ? 1 : 0;
        handles[request.id] = given->handle;
      }
    }
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(whole, 300);
}

TEST(CudaAsync, CountsRequestsAsTheyAreAndReservesPiecesOf32MiB) {
  // rapidsai/rmm#1245: used is the sum of requests; reserved is 84,490,059,776 = 2,518 x 32 MiB.
  static_assert(84490059776 % (32 * kMiB) == 0);
  const auto pool = Pool();
  const Allocation first = Grant(*pool, Bytes(100));
  EXPECT_EQ(first.charged, Bytes(100));
  EXPECT_EQ(pool->reserved(), MiB(32));
  EXPECT_EQ(Grant(*pool, Bytes(100), 3).address, first.address + 512) << "streams share the pool";
  EXPECT_EQ(pool->allocated(), Bytes(200));
  Grant(*pool, MiB(32));
  EXPECT_EQ(pool->reserved(), MiB(64));
}

TEST(CudaAsync, GivesUnusedPagesBackWhenAllStreamsWereWaitedFor) {
  const auto pool = Pool();
  const Allocation first = Grant(*pool, MiB(40));
  Grant(*pool, MiB(1));
  pool->Free(first.handle);
  EXPECT_EQ(pool->reserved(), MiB(64)) << "not before";
  pool->Synchronize();
  EXPECT_EQ(pool->reserved(), MiB(32)) << "of the free 40 MiB one page is whole";
  EXPECT_EQ(Grant(*pool, MiB(40)).address, first.address) << "mapped again";
  EXPECT_EQ(pool->reserved(), MiB(64));
}

TEST(CudaAsync, KeepsAsMuchAsTheThresholdFromTheLowestAddressUp) {
  const auto pool = Pool(kUnlimited, MiB(70));
  const Allocation low = Grant(*pool, MiB(64));
  Grant(*pool, MiB(32));
  const Allocation high = Grant(*pool, MiB(64));
  pool->Free(low.handle);
  pool->Free(high.handle);
  pool->Synchronize();
  // 160 MiB are held: three pages must go for 70 to be no less than what is left, both of the high ones first.
  EXPECT_EQ(pool->reserved(), MiB(64));
  EXPECT_EQ(Grant(*pool, MiB(32)).address, low.address);
  EXPECT_EQ(pool->reserved(), MiB(64));
}

TEST(CudaAsync, MapsUnusedPagesElsewhereRatherThanFail) {
  const auto pool = Pool(MiB(96), MiB(1000));
  const Allocation low = Grant(*pool, MiB(32));
  Grant(*pool, MiB(32));
  pool->Free(low.handle);
  const Allocation large = Grant(*pool, MiB(64));  // behind the second; the first page moves
  EXPECT_EQ(large.address, low.address + static_cast<std::uint64_t>(64 * kMiB));
  EXPECT_EQ(pool->cache_flushes(), 1);
  EXPECT_EQ(pool->reserved(), MiB(96));
  EXPECT_FALSE(pool->Allocate(Bytes(1), 0).has_value());
  EXPECT_EQ(pool->Statistics().ooms, 1);
  EXPECT_EQ(pool->Statistics().alloc_retries, 2);
}

TEST(FreeInUse, KeepsMemoryOfAnyKindUntilTheUseEnds) {
  for (const auto& [name, options] : EveryAllocator()) {
    SCOPED_TRACE(name);
    const auto allocator = MakeAllocator(options, MiB(1000));
    const Allocation first = Grant(*allocator, MiB(30));
    const std::uint64_t ticket = allocator->FreeInUse(first.handle);
    EXPECT_NE(Grant(*allocator, MiB(30)).address, first.address);
    allocator->UseEnds(ticket);
    allocator->UseEnds(ticket);  // heard twice
    if (options.kind != AllocatorKind::exact) {
      EXPECT_EQ(Grant(*allocator, MiB(30)).address, first.address);
    }
    const std::uint64_t other = allocator->FreeInUse(Grant(*allocator, MiB(3)).handle);
    allocator->Synchronize();
    allocator->UseEnds(other);
    Grant(*allocator, MiB(3));
  }
}

}  // namespace
}  // namespace tidemark::arena_and_pools_test
