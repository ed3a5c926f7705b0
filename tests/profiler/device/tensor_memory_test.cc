// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/tensor_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "profiler/device/host_device.h"
#include "profiler/device/host_memory.h"
#include "tests/profiler/execute/lazy_device.h"
#include "tests/sim/allocation_log.h"
#include "tests/sim/dice.h"

namespace tidemark::tensor_memory_test {
namespace {

/// Each byte is the one before it: under a sanitizer a loop takes a hundred times as long as memcmp.
bool IsFullOf(const TensorMemory::Piece& piece, unsigned char byte) {
  const auto* begin = static_cast<const unsigned char*>(piece.data);
  const auto size = static_cast<std::size_t>(piece.bytes.count());
  return size == 0 || (*begin == byte && std::memcmp(begin, begin + 1, size - 1) == 0);
}
bool IsPoisoned(const TensorMemory::Piece& piece) { return IsFullOf(piece, 0xff); }

TensorMemory MemoryWith(const AllocatorOptions& options) {
  static HostDevice device;
  return TensorMemory(MakeAllocator(options, device.MemoryOf(Bytes(64 << 20))), device);
}

TEST(TensorMemory, GivesNaNsAndLeavesNaNsBehind) {
  TensorMemory memory = MemoryWith({});
  const auto piece = memory.Allocate(Bytes(4000), 0);
  ASSERT_TRUE(piece);
  EXPECT_TRUE(IsPoisoned(*piece));
  std::memset(piece->data, 0, 4000);
  memory.Free(*piece);
  EXPECT_TRUE(IsPoisoned(*piece)) << "freed too early, it shows: the cache still has it";
}

// Pieces of random sizes come and go, each full of zeros while it lives: whichever parts of freed neighbours and of new
// memory a piece is made of, and whether or not the device had it meanwhile, nothing of the zeros may come back.
TEST(TensorMemory, GivesNaNsWhateverWasThereBefore) {
  for (const auto& [name, options] : EveryAllocator()) {
    Dice dice(7);
    TensorMemory memory = MemoryWith(options);
    std::vector<TensorMemory::Piece> live;
    for (int i = 0; i < 500; ++i) {
      if (live.size() > 20 || (!live.empty() && dice.OneIn(2))) {
        std::swap(live[dice.Roll(live.size())], live.back());
        memory.Free(live.back());
        live.pop_back();
      }
      const auto piece = memory.Allocate(Bytes(dice.Number(1, i % 10 == 0 ? 3 << 20 : 5000)), 0);
      if (!piece) {
        continue;
      }
      ASSERT_TRUE(IsPoisoned(*piece)) << name << ", request " << i;
      std::memset(piece->data, 0, static_cast<std::size_t>(piece->bytes.count()));
      live.push_back(*piece);
    }
  }
}

TEST(TensorMemory, LeavesWhatIsFreedAsItIsWhereTimesCount) {
  TensorMemory memory = MemoryWith({});
  const auto piece = memory.Allocate(Bytes(4000), 0);
  ASSERT_TRUE(piece);
  memory.Fill(Poison::nothing);
  std::memset(piece->data, 7, 4000);
  memory.Free(*piece);
  EXPECT_TRUE(IsFullOf(*piece, 7));
  const auto again = memory.Allocate(Bytes(4000), 0);
  ASSERT_TRUE(again);
  ASSERT_EQ(again->data, piece->data);
  EXPECT_TRUE(IsFullOf(*again, 7)) << "nobody has filled it";
  memory.Free(*again);
  memory.Fill(Poison::everything);
  const auto checked = memory.Allocate(Bytes(4000), 0);
  ASSERT_TRUE(checked);
  ASSERT_EQ(checked->data, piece->data);
  EXPECT_TRUE(IsPoisoned(*checked)) << "what it was left with shows again";
}

TEST(TensorMemory, LeavesWhatTheDeviceGivesAsItIsWhereTimesCount) {
  for (const auto& [name, options] : EveryAllocator()) {
    TensorMemory memory = MemoryWith(options);
    memory.Fill(Poison::nothing);
    const auto piece = memory.Allocate(Bytes(4000), 0);
    ASSERT_TRUE(piece);
    EXPECT_TRUE(IsFullOf(*piece, 0)) << name << ": fresh pages of the system's";
  }
}

/// A device whose host never has to wait for all of it.
class NeverAwaitedDevice final : public LazyDevice {
 public:
  NeverAwaitedDevice() : LazyDevice(First::lowest) {}
  void Synchronize() override { ADD_FAILURE() << "the host waits for the whole device"; }
};

class TensorMemoryInUse : public testing::TestWithParam<Poison> {};

// A later stream still writes into what is freed, and the first one gets a part of it. The device would run the first
// one first.
TEST_P(TensorMemoryInUse, MakesWhoGetsItWaitForWhoStillUsesIt) {
  NeverAwaitedDevice device;
  TensorMemory memory(MakeAllocator({}, std::make_unique<HostMemory>(Bytes(64 << 20))), device);
  memory.Fill(GetParam());
  const auto write = [&](std::uint32_t stream, const TensorMemory::Piece& piece, int byte) {
    device.Give(stream, [=](const kernels::Queue&) {
      std::memset(piece.data, byte, static_cast<std::size_t>(piece.bytes.count()));
    });
  };
  const auto first = memory.Allocate(Bytes(4096), 0);
  ASSERT_TRUE(first);
  device.Finish(0);
  write(1, *first, 7);
  memory.FreeInUse(*first, {device.MarkIn(1)});
  const Bytes allocated = memory.allocator().allocated();
  EXPECT_EQ(allocated, Bytes(0)) << "it counts as free at once";
  const auto part = memory.Allocate(Bytes(1024), 0), rest = memory.Allocate(Bytes(3072), 0);
  ASSERT_TRUE(part && rest);
  ASSERT_EQ(part->data, first->data) << "nothing is held back";
  write(0, *part, 5);
  device.Finish(0);
  const auto* bytes = static_cast<const unsigned char*>(part->data);
  EXPECT_TRUE(std::all_of(bytes, bytes + 1024, [](unsigned char byte) { return byte == 5; }));
  const auto as_left = [&] { return GetParam() == Poison::everything ? IsPoisoned(*rest) : IsFullOf(*rest, 7); };
  EXPECT_TRUE(as_left());
  device.Finish(1);
  EXPECT_TRUE(as_left());
  memory.Free(*part);
  memory.Free(*rest);
  device.Finish(0);
}

INSTANTIATE_TEST_SUITE_P(Poisons, TensorMemoryInUse, testing::Values(Poison::everything, Poison::nothing),
                         [](const auto& poison) {
                           return std::string(poison.param == Poison::everything ? "everything" : "nothing");
                         });

}  // namespace
}  // namespace tidemark::tensor_memory_test
