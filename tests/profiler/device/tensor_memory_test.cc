// SPDX-License-Identifier: Apache-2.0
#include "profiler/device/tensor_memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "profiler/device/host_device.h"
#include "profiler/device/host_memory.h"
#include "tests/sim/allocation_log.h"
#include "tests/sim/dice.h"

namespace tidemark {
namespace {

bool IsPoisoned(const TensorMemory::Piece& piece) {
  const auto* begin = static_cast<const unsigned char*>(piece.data);
  return std::all_of(begin, begin + piece.bytes.count(), [](unsigned char byte) { return byte == 0xff; });
}

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

}  // namespace
}  // namespace tidemark
