// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdlib>
#include <vector>

#include "tests/kernels/cuda_cases/compare.h"
#include "tests/kernels/cuda_cases/host_memory.h"
#include "tests/kernels/emulated/gpu.h"

namespace tidemark::kernels::cuda {
namespace {

/// Memory that both the host and the emulated GPU use.
class Emulated final : public HostMemory {
 public:
  Emulated() : HostMemory(std::size_t{1} << 20) {}

  Queue queue() const override { return QueueBeside(); }
  bool tries_special_numbers() const override { return false; }
  void* Take(std::size_t bytes) const override { return std::aligned_alloc(256, (bytes + 511) / 256 * 256); }
};

/// What is compiled for a GPU alone: threads that work together.
class OnAnEmulatedGpu : public testing::TestWithParam<Case> {};

TEST_P(OnAnEmulatedGpu, IsTheTruthWithinItsRoundings) { GetParam().check(Emulated()); }

INSTANTIATE_TEST_SUITE_P(Kernels, OnAnEmulatedGpu, testing::ValuesIn(Cases()),
                         [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace tidemark::kernels::cuda

namespace tidemark::emulated::kernels_test {
namespace {

TEST(EmulatedGpu, RunsEveryThreadOfEveryBlockOnce) {
  std::vector<int> runs(3 * 64);
  Launch(3, {32, 2}, 0, [&] { ++runs[BlockIndex().x * 64 + ThreadIndex().y * 32 + ThreadIndex().x]; });
  EXPECT_EQ(runs, std::vector<int>(3 * 64, 1));
}

/// Thread i reads what thread i + 1 has written.
std::vector<int> Neighbours(bool syncs) {
  std::vector<int> read(64, -1);
  Launch(1, 64, 64 * sizeof(int), [&] {
    int* const shared = reinterpret_cast<int*>(SharedMemory());
    const unsigned i = ThreadIndex().x;
    shared[i] = static_cast<int>(i);
    if (syncs) {
      SyncBlock();
    }
    read[i] = shared[(i + 1) % 64];
  });
  return read;
}

TEST(EmulatedGpu, ShowsAMissingBarrier) {
  const std::vector<int> right = Neighbours(true);
  EXPECT_EQ(right[0], 1);
  EXPECT_EQ(right[63], 0);
  EXPECT_EQ(Neighbours(true), right);
  EXPECT_NE(Neighbours(false), Neighbours(false)) << "in the other order other threads have written";
}

TEST(EmulatedGpu, EndsWhereThreadsWaitForOthersThatDoNotCome) {
  EXPECT_DEATH(Launch(1, 64, 0,
                      [] {
                        if (ThreadIndex().x < 32) {
                          SyncBlock();
                        }
                      }),
               "wait for others that do not come");
}

TEST(EmulatedGpu, HasCopiesUnderWayUntilTheyAreWaitedFor) {
  alignas(16) const std::array<float, 4> from = {1, 2, 3, 4};
  std::array<float, 2> seen{};
  Launch(1, 32, 16, [&] {
    if (ThreadIndex().x == 0) {
      const auto* const to = reinterpret_cast<const float*>(SharedMemory());
      CopyAsync(SharedMemory(), from.data(), 16, 16);
      seen[0] = to[2];
      WaitForCopies();
      seen[1] = to[2];
    }
  });
  EXPECT_TRUE(std::isnan(seen[0]));
  EXPECT_EQ(seen[1], 3);
  EXPECT_DEATH(Launch(1, 32, 512, [&] { CopyAsync(SharedMemory() + 16 * ThreadIndex().x, from.data(), 16, 16); }),
               "nobody waited for");
}

}  // namespace
}  // namespace tidemark::emulated::kernels_test
