// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "profiler/device/host_device.h"
#include "tests/profiler/execute/executed_job.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::later_steps_test {
namespace {

/// Counts what its streams are given, and the rooms that it makes.
class CountingDevice final : public HostDevice {
 public:
  void Give(std::uint32_t stream, Work work) override {
    ++given;
    HostDevice::Give(stream, std::move(work));
  }
  std::unique_ptr<DeviceRoom> RoomFor(Bytes bytes) override {
    ++rooms;
    return HostDevice::RoomFor(bytes);
  }
  std::int64_t given = 0, rooms = 0;
};

// To fill every freed tensor takes as long as a part of the step. Neither may the numbers depend on it.
TEST(LaterSteps, FillNothingWithNaNs) {
  for (const std::string strategy : {"ddp-last", "fsdp2-scatter-each", "deepspeed-zero3", "megatron-dist-opt"}) {
    Job job = SmallJob(strategy);
    const auto run = [&](std::int64_t steps, Poison again) {
      CountingDevice device;
      RunOutcome outcome = Executed(job, steps, {.again = again, .device = &device});
      return std::pair(std::move(outcome), device.given);
    };
    const auto [three, of_three] = run(3, Poison::nothing);
    const auto [five, of_five] = run(5, Poison::nothing);
    const auto [checked_three, of_checked_three] = run(3, Poison::everything);
    const auto [checked_five, of_checked_five] = run(5, Poison::everything);
    const std::vector<MemoryEvent>& events = five.trace.memory;
    const auto frees = std::count_if(events.begin() + static_cast<std::ptrdiff_t>(five.trace.steps[3].memory_begin),
                                     events.end(), [&](const MemoryEvent& event) { return !event.alloc; });
    ASSERT_GT(frees, 0) << strategy;
    EXPECT_GE((of_checked_five - of_checked_three) - (of_five - of_three), frees) << strategy;
    for (std::size_t i = 0; i < five.steps.size(); ++i) {
      EXPECT_EQ(five.steps[i].loss, checked_five.steps[i].loss) << strategy << ", step " << i;
    }
    job.allocator.kind = AllocatorKind::exact;  // every tensor comes from the device
    EXPECT_EQ(run(5, Poison::nothing).second - run(3, Poison::nothing).second, of_five - of_three) << strategy;
  }
}

// A GPU waits for all of its work where a room is made or dropped.
TEST(LaterSteps, MakeNoRooms) {
  Job job = SmallJob("megatron-dist-opt");
  job.layout.dp = 2;
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.hidden = 128;  // an even number of aligned parts: both ranks run one program
  decoder.head_size = 32;
  const auto rooms = [&](std::int64_t steps) {
    const LoweredSteps lowered(job, steps);
    std::atomic<std::int64_t> made = 0;
    RunTogether(job.Ranks(), [&](World& world) {
      CountingDevice device;
      Result<RunOutcome> run = RunSteps(job, lowered.steps(), {.device = &device}, world);
      made += device.rooms;
      return run;
    });
    return made.load();
  };
  EXPECT_EQ(rooms(3), rooms(6));
}

}  // namespace
}  // namespace tidemark::later_steps_test
