// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <iterator>
#include <map>
#include <random>
#include <vector>

#include "sim/memory/allocator.h"
#include "tests/sim/dice.h"
#include "tests/sim/naive_allocators.h"

namespace tidemark::allocator_property_test {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

struct Live {
  Allocation given;
  int tensor;  // the naive allocator's name for it
};

/// Sizes around every threshold, and between.
std::int64_t RandomBytes(std::mt19937& random) {
  static constexpr std::int64_t kEdges[] = {512, kMiB, 2 * kMiB, 10 * kMiB, 11 * kMiB, 12 * kMiB, 20 * kMiB, 30 * kMiB};
  const std::int64_t edge = kEdges[random() % std::size(kEdges)];
  switch (random() % 3) {
    case 0:
      return std::max<std::int64_t>(1, edge + static_cast<std::int64_t>(random() % 3 * 512) - 512);
    case 1:
      return 1 + static_cast<std::int64_t>(random()) % edge;
    default:
      return edge;
  }
}

void ExpectNoOverlap(const std::vector<Live>& live) {
  std::map<std::uint64_t, Bytes> by_address;
  for (const Live& tensor : live) {
    EXPECT_TRUE(by_address.emplace(tensor.given.address, tensor.given.charged).second);
  }
  std::uint64_t end = 0;
  for (const auto& [address, bytes] : by_address) {
    EXPECT_GE(address, end);
    end = address + static_cast<std::uint64_t>(bytes.count());
  }
}

struct Tally {
  int refused = 0, flushed = 0, granted = 0;
};

/// Requests on a device whose size, too, is drawn; `make_naive` is given it.
template <class MakeNaive>
void AgreeOn(std::uint32_t seed, const AllocatorOptions& options, MakeNaive make_naive, Tally& tally) {
  std::mt19937 random(seed);
  const std::int64_t capacity = 2 * kMiB * (10 + static_cast<std::int64_t>(random()) % 140);
  const std::uint32_t streams = 1 + static_cast<std::uint32_t>(random() % 3);
  const auto allocator = MakeAllocator(options, Bytes(capacity));
  auto naive = make_naive(capacity);
  std::vector<Live> live;
  std::int64_t charged = 0;
  for (int step = 0; step < 200; ++step) {
    if (!live.empty() && random() % 100 < 45) {
      std::swap(live[random() % live.size()], live.back());
      allocator->Free(live.back().given.handle);
      naive.Free(live.back().tensor);
      charged -= live.back().given.charged.count();
      live.pop_back();
    } else {
      const std::int64_t bytes = RandomBytes(random);
      const std::uint32_t stream = static_cast<std::uint32_t>(random() % streams);
      const auto given = allocator->Allocate(Bytes(bytes), stream);
      const auto expected = naive.Allocate(bytes, static_cast<int>(stream));
      ASSERT_EQ(given.has_value(), expected.has_value()) << "step " << step << ", " << bytes << " bytes";
      tally.refused += !given;
      tally.granted += given.has_value();
      if (given) {
        ASSERT_EQ(given->charged, Bytes(expected->charged)) << "step " << step;
        charged += expected->charged;
        live.push_back({*given, expected->tensor});
      }
    }
    ASSERT_EQ(allocator->allocated(), Bytes(charged)) << "step " << step;
    ASSERT_EQ(allocator->reserved(), Bytes(naive.reserved())) << "step " << step;
    ASSERT_EQ(allocator->cache_flushes(), naive.flushes) << "step " << step;
    ASSERT_GE(allocator->reserved(), allocator->allocated());
    ExpectNoOverlap(live);
  }
  tally.flushed += naive.flushes > 0;
  for (const Live& tensor : live) {
    allocator->Free(tensor.given.handle);
  }
  EXPECT_EQ(allocator->allocated(), Bytes(0));
  EXPECT_FALSE(allocator->Allocate(Bytes(capacity + 2 * kMiB), 0).has_value());
  EXPECT_EQ(allocator->reserved(), Bytes(0)) << "freed segments did not merge back into wholes";
}

TEST(TorchCachingProperty, AgreesWithANaiveModelOnRandomRequests) {
  Tally tally;
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    AgreeOn(
        seed, {}, [](std::int64_t capacity) { return naive::Caching(capacity); }, tally);
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_GT(tally.refused, 1000);
  EXPECT_GT(tally.granted, 10000);
  EXPECT_GT(tally.flushed, 100) << "of 300 runs";
}

naive::Knobs RandomKnobs(Dice dice) {
  naive::Knobs knobs;
  knobs.large_segment = kMiB * (dice.OneIn(2) ? 20 : dice.Number(12, 31));
  knobs.max_split = dice.OneIn(3) ? 0 : std::max(knobs.large_segment, 20 * kMiB) + kMiB * dice.Number(0, 19);
  knobs.rounding = kMiB * dice.Number(20, 29);
  knobs.divisions = dice.OneIn(2) ? 0 : std::int64_t{1} << dice.Number(0, 4);
  knobs.fraction = dice.OneIn(3) ? 0 : 0.1 * static_cast<double>(dice.Number(3, 10));
  knobs.collect_above = dice.OneIn(2) ? 0 : 0.1 * static_cast<double>(dice.Number(2, 8));
  return knobs;
}

TEST(TorchCachingProperty, AgreesWithANaiveModelUnderRandomKnobs) {
  Tally tally;
  for (std::uint32_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(seed);
    const naive::Knobs knobs = RandomKnobs(Dice(seed));
    AllocatorOptions options{.max_split = Bytes(knobs.max_split),
                             .max_non_split_rounding = Bytes(knobs.rounding),
                             .large_segment = Bytes(knobs.large_segment),
                             .garbage_collection_threshold = knobs.collect_above,
                             .memory_fraction = knobs.fraction};
    if (knobs.divisions > 0) {
      options.roundup_power2_divisions = {{Bytes(0), knobs.divisions}};
    }
    AgreeOn(
        seed, options, [&](std::int64_t capacity) { return naive::Caching(capacity, knobs); }, tally);
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_GT(tally.refused, 3000);
  EXPECT_GT(tally.granted, 30000);
  EXPECT_GT(tally.flushed, 300) << "of 1000 runs";
}

TEST(ExpandableSegmentsProperty, AgreeWithANaiveModelOnRandomRequests) {
  Tally tally;
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    AgreeOn(
        seed, {.expandable_segments = true}, [](std::int64_t capacity) { return naive::Expandable(capacity); }, tally);
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_GT(tally.refused, 1000);
  EXPECT_GT(tally.granted, 10000);
  EXPECT_GT(tally.flushed, 100) << "of 300 runs";
}

TEST(ExpandableSegmentsProperty, AgreeWithANaiveModelUnderRandomKnobs) {
  Tally tally;
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    Dice dice(seed);
    naive::Knobs knobs;
    knobs.large_segment = 2 * kMiB * dice.Number(5, 16);
    knobs.divisions = dice.OneIn(2) ? 0 : std::int64_t{1} << dice.Number(0, 4);
    knobs.fraction = dice.OneIn(3) ? 0 : 0.1 * static_cast<double>(dice.Number(3, 10));
    AllocatorOptions options{
        .expandable_segments = true, .large_segment = Bytes(knobs.large_segment), .memory_fraction = knobs.fraction};
    if (knobs.divisions > 0) {
      options.roundup_power2_divisions = {{Bytes(0), knobs.divisions}};
    }
    AgreeOn(
        seed, options, [&](std::int64_t capacity) { return naive::Expandable(capacity, knobs); }, tally);
    ASSERT_FALSE(HasFatalFailure());
  }
  EXPECT_GT(tally.refused, 1000);
  EXPECT_GT(tally.granted, 10000);
}

}  // namespace
}  // namespace tidemark::allocator_property_test
