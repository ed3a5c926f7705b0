// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/host_memory.h"

#include <gtest/gtest.h>

#include <cstring>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "sim/memory/allocator.h"
#include "sim/memory/capacity.h"
#include "tests/profiler/device/expect_same.h"
#include "tests/sim/allocation_log.h"
#include "tests/sim/dice.h"

namespace tidemark::host_memory_test {
namespace {

constexpr std::int64_t kMiB = 1 << 20;
constexpr Bytes kPage = Bytes(2 * kMiB);

volatile std::uint8_t* At(std::uint64_t address) { return reinterpret_cast<volatile std::uint8_t*>(address); }

TEST(HostMemory, GivesPiecesThatHoldZerosAndKeepWhatIsWritten) {
  HostMemory memory(Bytes(20000));
  const auto first = memory.Take(Bytes(10000));
  const auto second = memory.Take(Bytes(10000));
  ASSERT_TRUE(first && second);
  for (std::uint64_t i = 0; i < 10000; ++i) {
    ASSERT_EQ(*At(*first + i), 0);
    *At(*first + i) = 0xAB;
  }
  std::memset(reinterpret_cast<void*>(*second), 0x11, 10000);
  for (std::uint64_t i = 0; i < 10000; ++i) {
    ASSERT_EQ(*At(*first + i), 0xAB);
  }
  EXPECT_FALSE(memory.Take(Bytes(1))) << "the capacity is sharp to the byte";
  EXPECT_EQ(memory.taken(), Bytes(20000));
}

TEST(HostMemory, CountsWhatTheSystemMapped) {
  HostMemory memory(Bytes(1 << 20));
  const auto piece = memory.Take(Bytes(1));
  EXPECT_EQ(memory.taken(), Bytes(1));
  EXPECT_GE(memory.mapped(), Bytes(4096)) << "a page of the system at least";
  memory.Give(*piece, Bytes(1));
  EXPECT_EQ(memory.mapped(), Bytes(0));
  EXPECT_GE(memory.mapped_peak(), Bytes(4096));
}

TEST(HostMemoryDeathTest, WhatWasGivenBackCannotBeTouched) {
  HostMemory memory(Bytes(1 << 20));
  const auto piece = memory.Take(Bytes(5000));
  *At(*piece) = 1;
  memory.Give(*piece, Bytes(5000));
  EXPECT_DEATH(*At(*piece) = 1, "");
}

TEST(HostMemoryDeathTest, GivingBackWhatWasNotTakenIsAFaultOfOurs) {
  HostMemory memory(Bytes(1 << 20));
  const auto piece = memory.Take(Bytes(50000));
  EXPECT_EXIT(memory.Give(*piece, Bytes(30000)), testing::ExitedWithCode(70), "internal fault");
  EXPECT_EXIT(memory.Give(*piece + 4096, Bytes(50000)), testing::ExitedWithCode(70), "internal fault");
}

TEST(HostMemoryDeathTest, ARangeIsTouchedOnlyWherePagesAreMapped) {
  HostMemory memory(Bytes(64 * kMiB));
  const auto range = memory.Reserve(kPage);
  ASSERT_TRUE(range);
  EXPECT_EQ(*range % static_cast<std::uint64_t>(kPage.count()), 0U);
  EXPECT_EQ(memory.mapped(), Bytes(0));
  EXPECT_DEATH(*At(*range) = 1, "");
  const std::uint64_t page = static_cast<std::uint64_t>(kPage.count());
  ASSERT_TRUE(memory.Map(*range, 3 * kPage));
  EXPECT_EQ(memory.mapped(), 3 * kPage);
  for (std::uint64_t i = 0; i < 3; ++i) {
    *At(*range + i * page) = static_cast<std::uint8_t>(i + 1);
  }
  memory.Unmap(*range + page, kPage);
  EXPECT_DEATH(*At(*range + page) = 1, "");
  EXPECT_EQ(*At(*range), 1);
  EXPECT_EQ(*At(*range + 2 * page), 3);
  ASSERT_TRUE(memory.Map(*range + page, kPage));
  EXPECT_EQ(*At(*range + page), 0) << "new memory holds zeros";
  EXPECT_EQ(memory.mapped(), 3 * kPage);
  memory.Unmap(*range, 3 * kPage);
  memory.Release(*range, kPage);
  EXPECT_EQ(memory.mapped(), Bytes(0));
}

TEST(HostMemoryDeathTest, MappingAPageTwiceIsAFaultOfOurs) {
  HostMemory memory(Bytes(64 * kMiB));
  const auto range = memory.Reserve(kPage);
  ASSERT_TRUE(memory.Map(*range, 2 * kPage));
  EXPECT_EXIT(memory.Map(*range + static_cast<std::uint64_t>(kPage.count()), kPage), testing::ExitedWithCode(70),
              "internal fault");
}

/// What a tensor holds, by its name, at a few places of it.
class Contents {
 public:
  explicit Contents(const Allocation& given, std::uint64_t name, Bytes bytes)
      : address_(given.address), name_(name), bytes_(bytes.count()) {}

  void Write() const {
    ForEachPlace([&](std::int64_t place) { *At(address_ + static_cast<std::uint64_t>(place)) = Value(place); });
  }
  void Check() const {
    ForEachPlace([&](std::int64_t place) {
      ASSERT_EQ(*At(address_ + static_cast<std::uint64_t>(place)), Value(place))
          << "tensor " << name_ << " lost byte " << place << " of " << bytes_;
    });
  }

 private:
  template <class Do>
  void ForEachPlace(Do todo) const {
    for (const std::int64_t place : {std::int64_t{0}, bytes_ / 3, bytes_ / 2, bytes_ - 1}) {
      todo(place);
    }
  }
  std::uint8_t Value(std::int64_t place) const {
    return static_cast<std::uint8_t>(name_ * 31 + static_cast<std::uint64_t>(place) + 7);
  }

  std::uint64_t address_, name_;
  std::int64_t bytes_;
};

struct Live {
  Allocation real, pretended;
  Contents contents;
  Bytes bytes;
};

void ExpectNoOverlap(const std::map<std::uint32_t, Live>& live) {
  std::map<std::uint64_t, std::uint64_t> by_address;
  for (const auto& [id, tensor] : live) {
    EXPECT_TRUE(
        by_address.emplace(tensor.real.address, tensor.real.address + static_cast<std::uint64_t>(tensor.bytes.count()))
            .second);
  }
  std::uint64_t last = 0;
  for (const auto& [begin, end] : by_address) {
    EXPECT_GE(begin, last) << "two live tensors overlap";
    last = end;
  }
}

class EveryAllocatorOnRealMemory : public testing::TestWithParam<std::pair<std::string, AllocatorOptions>> {};

/// One log into both, event by event, with real reads and writes.
TEST_P(EveryAllocatorOnRealMemory, DoesWhatItDoesOnPretendedMemoryAndKeepsEveryTensor) {
  const AllocatorOptions& options = GetParam().second;
  int refused = 0;
  for (std::uint32_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed);
    const Bytes capacity = Bytes(kMiB * dice.Number(20, 200));
    auto memory = std::make_unique<HostMemory>(capacity);
    const HostMemory& host = *memory;
    const auto real = MakeAllocator(options, std::move(memory));
    const auto pretended = MakeAllocator(options, capacity);
    std::map<std::uint32_t, Live> live;
    for (const Request& request : RandomLog(seed, 300)) {
      if (request.after_sync) {
        real->Synchronize();
        pretended->Synchronize();
      }
      if (request.alloc) {
        const auto given = real->Allocate(request.bytes, request.stream);
        const auto expected = pretended->Allocate(request.bytes, request.stream);
        ASSERT_EQ(given.has_value(), expected.has_value());
        refused += given ? 0 : 1;
        if (given) {
          EXPECT_EQ(given->charged, expected->charged);
          const Contents contents(*given, request.id + seed, request.bytes);
          contents.Write();
          live.emplace(request.id, Live{*given, *expected, contents, request.bytes});
        }
      } else if (const auto gone = live.find(request.id); gone != live.end()) {
        gone->second.contents.Check();
        real->Free(gone->second.real.handle);
        pretended->Free(gone->second.pretended.handle);
        live.erase(gone);
      }
      ASSERT_EQ(real->allocated(), pretended->allocated());
      ASSERT_EQ(real->reserved(), pretended->reserved());
      ASSERT_EQ(real->cache_flushes(), pretended->cache_flushes());
      ASSERT_GE(host.mapped(), real->reserved());
      ASSERT_LE(host.mapped(), real->reserved() + Bytes(4096 * static_cast<std::int64_t>(live.size())));
      ExpectNoOverlap(live);
    }
    for (const auto& [id, tensor] : live) {
      tensor.contents.Check();
    }
  }
  EXPECT_GT(refused, 20) << "of 60 logs";
}

TEST_P(EveryAllocatorOnRealMemory, HasTheOutcomeThatIsPredictedUnderEveryLimit) {
  const AllocatorOptions& options = GetParam().second;
  constexpr Bytes kUnlimited = Bytes(std::numeric_limits<std::int64_t>::max());
  for (std::uint32_t seed = 1; seed <= 25; ++seed) {
    SCOPED_TRACE(seed);
    const std::vector<Request> log = RandomLog(seed, 120);
    const auto real = [&](Bytes capacity) { return Replay(log, options, std::make_unique<HostMemory>(capacity)); };
    const Bytes minimum = MinimumCapacity(log, options);
    const Bytes peak = Replay(log, options, kUnlimited).reserved_peak;
    EXPECT_TRUE(real(minimum).succeeded());
    EXPECT_FALSE(real(minimum - Bytes(1)).succeeded());
    std::vector<Bytes> limits = {minimum, minimum - Bytes(1), minimum - Bytes(2 * kMiB), peak};
    Dice dice(seed);
    for (int i = 0; i < 20; ++i) {
      limits.push_back(Bytes(dice.Number(0, peak.count())));
    }
    for (const Bytes limit : limits) {
      if (limit >= Bytes(0)) {
        ExpectSame(real(limit), Replay(log, options, limit));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, EveryAllocatorOnRealMemory, testing::ValuesIn(EveryAllocator()),
                         [](const auto& row) { return row.param.first; });

}  // namespace
}  // namespace tidemark::host_memory_test
