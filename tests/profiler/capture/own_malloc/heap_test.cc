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
// of a mapping of its own fills whole pages.
TEST_F(Heap, CountsEveryWayToAskForABlock) {
  const HeapScope scope(HeapOwner::data);
  void* block = nullptr;
  const auto ends_with = [&](std::int64_t expected) {
    EXPECT_EQ(Grown(HeapOwner::data), expected);
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
  ends_with(static_cast<std::int64_t>(malloc_usable_size(block) + 8));
  ASSERT_EQ(posix_memalign(&block, 4096, 4096), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 4096, 0U);
  ends_with(static_cast<std::int64_t>(malloc_usable_size(block) + 8));
  EXPECT_EQ(posix_memalign(&block, 24, 4096), EINVAL);
  const auto owned = std::make_unique<std::vector<char>>(1000);
  EXPECT_EQ(Grown(HeapOwner::data), 1008 + 32);
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

TEST_F(Heap, IsWhatTheCLibrarysOwnBooksSay) {
  const auto in_use = [] {
    const struct mallinfo2 heap = mallinfo2();
    return static_cast<double>(heap.uordblks + heap.hblkhd);
  };
  const double before = in_use();
  std::vector<std::vector<char>> blocks(1000);
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].resize(100 + 31 * i);
  }
  std::int64_t counted = 0;
  for (std::size_t i = 0; i < kHeapOwners; ++i) {
    counted += Grown(static_cast<HeapOwner>(i));
  }
  EXPECT_NEAR(static_cast<double>(counted), in_use() - before, 0.001 * 16e6);
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
