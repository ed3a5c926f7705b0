// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "profiler/comm/staged.h"
#include "tests/profiler/execute/different_parameters.h"
#include "tests/profiler/execute/lazy_device.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark {
namespace {

constexpr std::int64_t kRanks = 2;

/// Ranks whose tensors lie on devices with streams: what they exchange goes by way of the host.
class StagedWorld final : public World {
 public:
  StagedWorld(World& host, LazyDevice& device) : host_(host), device_(device) {}

  std::int64_t rank() const override { return host_.rank(); }
  std::int64_t size() const override { return host_.size(); }
  std::int64_t ranks_here() const override { return host_.ranks_here(); }
  Result<std::unique_ptr<Communicator>> Split(std::int64_t colour) override {
    TIDEMARK_ASSIGN(auto group, host_.Split(colour));
    return MakeStagedCommunicator(std::move(group), {[this](const void* from, void* host, Bytes bytes, void* stream) {
                                                       device_.Fetch(LazyDevice::IndexOf(stream), from, host, bytes);
                                                       return Status(Done{});
                                                     },
                                                     [this](const void* host, void* to, Bytes bytes, void* stream) {
                                                       device_.Put(LazyDevice::IndexOf(stream), host, to, bytes);
                                                       return Status(Done{});
                                                     }});
  }
  double Highest(double value) override { return host_.Highest(value); }
  double Sum(double value) override { return host_.Sum(value); }
  std::vector<std::string> GatherTexts(const std::string& text) override { return host_.GatherTexts(text); }
  void Abort(int exit_code) override { host_.Abort(exit_code); }

 private:
  World& host_;
  LazyDevice& device_;
};

/// What no mark holds back happens whenever it likes here.
class ForgetfulDevice final : public LazyDevice {
 public:
  using LazyDevice::LazyDevice;
  void WaitFor(std::uint32_t, Mark) override {}
};

template <class Streams>
std::vector<RunOutcome> OnStreams(const Job& job, LazyDevice::First first) {
  const LoweredSteps lowered(job, 2);
  return RunTogether(job.Ranks(), [&](World& world) {
    Streams device(first);
    StagedWorld staged(world, device);
    return RunSteps(job, lowered.steps(), {.keep_gradients = true, .kept_update = 2, .device = &device}, staged);
  });
}

std::vector<RunOutcome> OneByOne(const Job& job) {
  return ExecutedTogether(job, 2, {.keep_gradients = true, .kept_update = 2});
}

Job TwoRanks(const std::string& strategy) {
  Job job = SmallJob(strategy);
  job.layout.dp = kRanks;
  return job;
}

class Streams : public testing::TestWithParam<std::string> {};

/// Whatever a device does late or early, as far as a program's records and waits let it: bits stay the same, and so
/// does what memory holds when.
TEST_P(Streams, GiveTheSameBitsInWhateverOrderTheyRun) {
  const Job job = TwoRanks(GetParam());
  const std::vector<RunOutcome> expected = OneByOne(job);
  for (const auto first : {LazyDevice::First::lowest, LazyDevice::First::highest}) {
    const std::vector<RunOutcome> found = OnStreams<LazyDevice>(job, first);
    for (std::size_t rank = 0; rank < expected.size(); ++rank) {
      EXPECT_TRUE(found[rank].gradients == expected[rank].gradients) << "rank " << rank;
      EXPECT_EQ(found[rank].steps.back().loss, expected[rank].steps.back().loss);
      EXPECT_EQ(found[rank].allocator_peak, expected[rank].allocator_peak);
      EXPECT_EQ(found[rank].reserved_peak, expected[rank].reserved_peak);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Strategies, Streams,
                         testing::Values("ddp-every", "ddp-last", "fsdp1", "fsdp1-no-sync", "fsdp2-scatter-each",
                                         "fsdp2-defer", "fsdp2-keep-all", "deepspeed-zero1", "deepspeed-zero2",
                                         "deepspeed-zero3", "colossalai-zero2", "colossalai-gemini", "megatron",
                                         "nanotron", "alpa", "jax-multisteps"),
                         StrategyName);

TEST(StreamsWithoutWaits, GiveOtherBits) {
  const Job job = TwoRanks("fsdp2-scatter-each");
  const std::vector<RunOutcome> expected = OneByOne(job);
  int differ = 0;
  for (const auto first : {LazyDevice::First::lowest, LazyDevice::First::highest}) {
    differ += OnStreams<ForgetfulDevice>(job, first)[0].gradients == expected[0].gradients ? 0 : 1;
  }
  EXPECT_GT(differ, 0);
}

/// The kernels of a GPU, on the host, under a whole step.
class GpuKernels : public testing::TestWithParam<std::string> {};

TEST_P(GpuKernels, GiveTheGradientsOfTheTruth) {
  const Job job = SmallJob(GetParam());
  HostDevice device(kernels::Queue::Kind::host);
  RunOptions options{.exact = true, .keep_gradients = true};
  const RunOutcome expected = Executed(job, 1, options);
  options.device = &device;
  const RunOutcome found = Executed(job, 1, options);
  EXPECT_NEAR(*found.steps[0].loss, *expected.steps[0].loss, 1e-12);
  EXPECT_EQ(found.allocator_peak, expected.allocator_peak);
  ASSERT_EQ(found.gradients.size(), expected.gradients.size());
  ASSERT_FALSE(found.gradients.empty());
  EXPECT_EQ(DifferentParameters(found.gradients, expected.gradients), std::set<std::string>{});
}

INSTANTIATE_TEST_SUITE_P(Strategies, GpuKernels,
                         testing::Values("ddp-last", "fsdp2-scatter-each", "deepspeed-zero2", "colossalai-zero2",
                                         "nanotron", "megatron", "alpa", "jax-multisteps"),
                         StrategyName);

}  // namespace
}  // namespace tidemark
