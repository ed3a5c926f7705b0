// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "profiler/calibrate/calibrate.h"
#include "profiler/comm/communicator.h"
#include "profiler/device/host_device.h"
#include "sim/cost/cost.h"
#include "tests/profiler/calibrate/counted_device.h"
#include "tests/profiler/calibrate/small_sizes.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::exchanges_test {
namespace {

constexpr std::int64_t kRanks = 4;

/// One of four ranks whose exchanges keep a stream's order and take what the model of a link says.
class ModelledGroup final : public Communicator {
 public:
  ModelledGroup(CountedDevice& device, const Link& link) : device_(device) {
    machine_.intra_node = link;
    machine_.devices_per_node = kRanks;
  }
  std::int64_t rank() const override { return 0; }
  std::int64_t size() const override { return kRanks; }
  bool on_stream() const override { return true; }
  Result<Ticket> Begin(const Exchange& exchange) override {
    const Group group{"dp", kRanks, kRanks};
    device_.Pass(CollectiveTime(exchange.kind, SizeOf(exchange.dtype) * exchange.elements, group, machine_));
    return Ticket{0};
  }
  Status Finish(Ticket) override { return Done{}; }
  Status Send(const Message&, const void*) override { return Done{}; }
  Result<Ticket> Receive(const Message&, void*) override { return Ticket{0}; }

 private:
  CountedDevice& device_;
  Machine machine_;
};

class ModelledWorld final : public World {
 public:
  std::int64_t rank() const override { return 0; }
  std::int64_t size() const override { return kRanks; }
  std::int64_t ranks_here() const override { return kRanks; }
  Result<std::unique_ptr<Communicator>> Split(std::int64_t) override { return BadInput("nobody splits it"); }
  double Highest(double value) override { return value; }
  double Sum(double value) override { return value * kRanks; }
  std::vector<std::string> GatherTexts(const std::string& text) override { return {text}; }
  void Abort(int exit_code) override { std::exit(exit_code); }
};

// The model backwards: what exchanges over a link take gives the link again, for any number of ranks.
TEST(MeasuredLink, IsTheOneByWhichCollectivesArePredicted) {
  const Link link{Nanos(3000), BytesPerSec(200e9)};
  CountedDevice device{Nanos()};
  ModelledGroup group(device, link);
  ModelledWorld world;
  CalibrationSizes sizes = SmallSizes();
  sizes.exchanged = std::int64_t{1} << 22;  // 8 and 16 MiB
  const Result<Link> found = MeasureLink(world, group, device, sizes);
  ASSERT_TRUE(found.ok()) << found.error().Text();
  EXPECT_NEAR(static_cast<double>(found->latency.count()), 3000, 1);
  EXPECT_NEAR(found->bandwidth.per_second(), 200e9, 0.001 * 200e9);  // 4 digits, of times in whole nanoseconds
}

TEST(MeasuredLink, OfRanksWithoutStreamsIsTakenByTheClock) {
  constexpr std::int64_t kThreads = 2;
  ThreadWorlds worlds(kThreads);
  std::vector<std::thread> ranks;
  for (std::int64_t rank = 0; rank < kThreads; ++rank) {
    ranks.emplace_back([&worlds, rank] {
      const auto world = worlds.Of(rank);
      const auto group = world->Split(0);
      ASSERT_TRUE(group.ok());
      HostDevice device;
      const Result<Link> found = MeasureLink(*world, **group, device, SmallSizes());
      ASSERT_TRUE(found.ok()) << found.error().Text();
      EXPECT_GE(found->latency, Nanos());
      EXPECT_GT(found->bandwidth.per_second(), 0);
    });
  }
  for (std::thread& rank : ranks) {
    rank.join();
  }
}

}  // namespace
}  // namespace tidemark::exchanges_test
