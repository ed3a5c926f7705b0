// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/heap.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace tidemark::heap_test {
namespace {

constexpr std::size_t kMiB = 1 << 20;

/// A block that comes and goes, which no compiler may leave out.
void Use(std::size_t bytes) {
  void* volatile block = std::malloc(bytes);
  std::free(block);
}

class Heap : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(HeapIsCounted());
    CountHeap();
    before_ = LiveHeap();
  }

  std::int64_t Grown(HeapOwner owner) const {
    const auto i = static_cast<std::size_t>(owner);
    return (LiveHeap()[i] - before_[i]).count();
  }

 private:
  HeapUse before_;
};

// glibc hands out multiples of 16 bytes, of which a header of 8 is its own ("Overview of Malloc", glibc wiki); a block
// of a mapping of its own fills whole pages. Cut from a block that was freed before, it keeps a rest of 16 bytes, and
// of 32 where it is aligned (_int_malloc and _int_memalign of malloc.c).
constexpr std::int64_t kMostRest = 32;

std::int64_t SizeOf(void* block) { return static_cast<std::int64_t>(malloc_usable_size(block)) + 8; }

TEST_F(Heap, CountsEveryWayToAskForABlock) {
  const HeapScope scope(HeapOwner::data);
  void* block = nullptr;
  const auto ends_with = [&](std::int64_t least) {
    const std::int64_t size = SizeOf(block);
    EXPECT_EQ(Grown(HeapOwner::data), size);
    EXPECT_GE(size, least);
    EXPECT_LE(size, least + kMostRest);
    std::free(block);
    EXPECT_EQ(Grown(HeapOwner::data), 0);
  };
  block = std::malloc(1000);
  ends_with(1008);
  block = std::calloc(10, 100);
  ends_with(1008);
  block = std::realloc(std::malloc(10), 1000);
  ends_with(1008);
  block = std::aligned_alloc(64, 1024);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0U);
  ends_with(1040);
  ASSERT_EQ(posix_memalign(&block, 4096, 4096), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 4096, 0U);
  ends_with(4112);
  EXPECT_EQ(posix_memalign(&block, 24, 4096), EINVAL);
  const auto owned = std::make_unique<std::vector<char>>(1000);
  const std::int64_t grown = Grown(HeapOwner::data);
  EXPECT_GE(grown, 1008 + 32);
  EXPECT_LE(grown, 1008 + 32 + 2 * kMostRest);
}

TEST_F(Heap, CountsForWhoeverIsAtWork) {
  std::vector<char> outer, inner, nobodys;
  {
    const HeapScope scope(HeapOwner::trace);
    outer.resize(kMiB);
    const HeapScope within(HeapOwner::workspace);
    inner.resize(2 * kMiB);
  }
  nobodys.resize(3 * kMiB);
  EXPECT_NEAR(static_cast<double>(Grown(HeapOwner::trace)), kMiB, 8192);
  EXPECT_NEAR(static_cast<double>(Grown(HeapOwner::workspace)), 2 * kMiB, 8192);
  EXPECT_NEAR(static_cast<double>(Grown(HeapOwner::nobody)), 3 * kMiB, 8192);
}

TEST_F(Heap, OfOtherThreadsIsNobodys) {
  std::vector<char> theirs;
  std::thread([&] { theirs.resize(kMiB); }).join();
  EXPECT_NEAR(static_cast<double>(Grown(HeapOwner::nobody)), kMiB, 8192);
}

// Blocks that a thread has freed and keeps for itself are in use to those books: a new thread has none.
TEST_F(Heap, IsWhatTheCLibrarysOwnBooksSay) {
  const auto in_use = [] {
    const struct mallinfo2 heap = mallinfo2();
    return static_cast<double>(heap.uordblks + heap.hblkhd);
  };
  const auto counted = [&] {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < kHeapOwners; ++i) {
      sum += Grown(static_cast<HeapOwner>(i));
    }
    return static_cast<double>(sum);
  };
  double books = 0, ours = 0;
  std::thread([&] {
    const double books_before = in_use(), ours_before = counted();
    std::vector<std::vector<char>> blocks(1000);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      blocks[i].resize(100 + 31 * i);
    }
    books = in_use() - books_before;
    ours = counted() - ours_before;
  }).join();
  EXPECT_NEAR(ours, books, 0.001 * 16e6);
}

TEST_F(Heap, IsLookedAtBeforeALargeBlockGoes) {
  int looks = 0;
  BeforeLargeFrees([](void* count) { ++*static_cast<int*>(count); }, &looks);
  Use(1000);
  EXPECT_EQ(looks, 0);
  Use(kMiB);
  EXPECT_EQ(looks, 1);
  std::thread([] { Use(kMiB); }).join();
  EXPECT_EQ(looks, 1) << "other threads do not look";
  BeforeLargeFrees(nullptr, nullptr);
  Use(kMiB);
  EXPECT_EQ(looks, 1);
}

}  // namespace
}  // namespace tidemark::heap_test
