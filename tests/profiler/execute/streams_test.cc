// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "profiler/comm/staged.h"
#include "tests/profiler/execute/different_parameters.h"
#include "tests/profiler/execute/lazy_device.h"
#include "tests/profiler/execute/stream_ranks.h"
#include "tests/profiler/execute/thread_ranks.h"

namespace tidemark::streams_test {
namespace {

constexpr std::int64_t kRanks = 2;
constexpr std::int64_t kSteps = 4;  ///< the last one's program has run before: nothing is filled with NaNs in it

/// What ranks exchange goes by way of the host.
class StagedWorld final : public DeviceWorld {
 public:
  using DeviceWorld::DeviceWorld;
  Result<std::unique_ptr<Communicator>> Split(std::int64_t colour) override {
    TIDEMARK_ASSIGN(auto group, host().Split(colour));
    return MakeStagedCommunicator(std::move(group), {[this](const void* from, void* to, Bytes bytes, void* stream) {
                                                       device().Fetch(LazyDevice::IndexOf(stream), from, to, bytes);
                                                       return Status(Done{});
                                                     },
                                                     [this](const void* from, void* to, Bytes bytes, void* stream) {
                                                       device().Put(LazyDevice::IndexOf(stream), from, to, bytes);
                                                       return Status(Done{});
                                                     }});
  }
};

/// What no mark holds back happens whenever it likes here.
class ForgetfulDevice final : public LazyDevice {
 public:
  using LazyDevice::LazyDevice;
  void WaitFor(std::uint32_t, Mark) override {}
};

template <class Exchanges, class Streams = LazyDevice>
std::vector<RunOutcome> OnStreams(const Job& job, LazyDevice::First first) {
  const LoweredSteps lowered(job, kSteps);
  return RunTogether(job.Ranks(), [&](World& world) {
    Streams device(first);
    Exchanges ranks(world, device);
    return RunSteps(job, lowered.steps(), {.keep_gradients = true, .kept_update = kSteps, .device = &device}, ranks);
  });
}

std::vector<RunOutcome> OneByOne(const Job& job) {
  return ExecutedTogether(job, kSteps, {.keep_gradients = true, .kept_update = kSteps});
}

Job TwoRanks(const std::string& strategy) {
  Job job = SmallJob(strategy);
  job.layout.dp = kRanks;
  return job;
}

/// Whatever a device does late or early, as far as a program's records and waits let it: bits stay the same, and so
/// does what memory holds when.
template <class Exchanges>
void ExpectTheSameBits(const Job& job) {
  const std::vector<RunOutcome> expected = OneByOne(job);
  for (const auto first : {LazyDevice::First::lowest, LazyDevice::First::highest}) {
    const std::vector<RunOutcome> found = OnStreams<Exchanges>(job, first);
    for (std::size_t rank = 0; rank < expected.size(); ++rank) {
      EXPECT_FALSE(expected[rank].gradients.empty());
      EXPECT_TRUE(found[rank].gradients == expected[rank].gradients) << "rank " << rank;
      EXPECT_EQ(found[rank].steps.back().loss, expected[rank].steps.back().loss);
      EXPECT_EQ(found[rank].allocator_peak, expected[rank].allocator_peak);
      EXPECT_EQ(found[rank].reserved_peak, expected[rank].reserved_peak);
    }
  }
}

class Streams : public testing::TestWithParam<std::string> {};

TEST_P(Streams, GiveTheSameBitsInWhateverOrderTheyRun) { ExpectTheSameBits<StagedWorld>(TwoRanks(GetParam())); }
TEST_P(Streams, GiveThemWhereExchangesKeepTheirOrder) { ExpectTheSameBits<StreamWorld>(TwoRanks(GetParam())); }

INSTANTIATE_TEST_SUITE_P(Strategies, Streams,
                         testing::Values("ddp-every", "ddp-last", "fsdp1", "fsdp1-no-sync", "fsdp2-scatter-each",
                                         "fsdp2-defer", "fsdp2-keep-all", "deepspeed-zero1", "deepspeed-zero2",
                                         "deepspeed-zero3", "colossalai-zero2", "colossalai-gemini", "megatron",
                                         "nanotron", "alpa", "jax-multisteps"),
                         StrategyName);

/// Gradients that lie in buckets, which are rebuilt in the third step, and a map from the host in each.
TEST(StreamsOfBucketViews, GiveTheSameBits) {
  for (const bool static_graph : {false, true}) {
    Job job = TwoRanks("ddp-every");
    job.axes.buffers.gradient_as_bucket_view = true;
    job.axes.sync.static_graph = static_graph;
    job.axes.sync.find_unused_parameters = !static_graph;
    ExpectTheSameBits<StagedWorld>(job);
    ExpectTheSameBits<StreamWorld>(job);
  }
}

/// Buckets of parameters that are one tensor to an exchange.
TEST(StreamsOfJointBuckets, GiveTheSameBits) {
  Job job = TwoRanks("megatron-dist-opt");
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.hidden = 128;  // an even number of aligned parts: both ranks run one program
  decoder.head_size = 32;
  ExpectTheSameBits<StagedWorld>(job);
  ExpectTheSameBits<StreamWorld>(job);
}

/// Routers of one rank, for whose counts the host waits, and experts of which ranks have different ones.
TEST(StreamsOfExperts, GiveTheSameBits) {
  for (const char* strategy : {"ddp-every", "megatron"}) {
    Job job = TwoRanks(strategy);
    std::get<Decoder>(job.network.shape).experts = {.count = 4, .per_token = 2, .ffn = 48};
    job.layout.ep = job.strategy == "megatron" ? kRanks : 1;
    ExpectTheSameBits<StagedWorld>(job);
    ExpectTheSameBits<StreamWorld>(job);
  }
}

class StreamsOfPipelines : public testing::TestWithParam<Schedule> {};

TEST_P(StreamsOfPipelines, GiveTheSameBits) {
  Job job = SmallJob("megatron");
  job.layout.pp = 2;
  job.layout.vpp = GetParam() == Schedule::interleaved ? 2 : 1;
  job.schedule = GetParam();
  job.accumulation_steps = 4;
  std::get<Decoder>(job.network.shape).layers = 4;
  std::get<Decoder>(job.network.shape).tied_embeddings = true;
  ExpectTheSameBits<StagedWorld>(job);
  ExpectTheSameBits<StreamWorld>(job);
}

INSTANTIATE_TEST_SUITE_P(Schedules, StreamsOfPipelines, testing::Values(Schedule::one_f_one_b, Schedule::interleaved),
                         [](const auto& schedule) {
                           return std::string(schedule.param == Schedule::interleaved ? "interleaved" : "one_f_one_b");
                         });

template <class Exchanges>
void ExpectOtherBitsWithoutWaits() {
  const Job job = TwoRanks("fsdp2-scatter-each");
  const std::vector<RunOutcome> expected = OneByOne(job);
  int differ = 0;
  for (const auto first : {LazyDevice::First::lowest, LazyDevice::First::highest}) {
    differ += OnStreams<Exchanges, ForgetfulDevice>(job, first)[0].gradients == expected[0].gradients ? 0 : 1;
  }
  EXPECT_GT(differ, 0);
}

TEST(StreamsWithoutWaits, GiveOtherBits) {
  ExpectOtherBitsWithoutWaits<StagedWorld>();
  ExpectOtherBitsWithoutWaits<StreamWorld>();
}

/// How often the host has waited for a whole device.
class CountingDevice final : public LazyDevice {
 public:
  using LazyDevice::LazyDevice;
  void Synchronize() override {
    ++waits;
    LazyDevice::Synchronize();
  }
  int waits = 0;
};

/// Frees of what other streams still use (PyTorch: record_stream) are theirs to order.
TEST(StreamsOfRecordedFrees, NeverMakeTheHostWaitForTheDevice) {
  const Job job = TwoRanks("fsdp1");
  const auto waits_in = [&](std::int64_t steps) {
    const LoweredSteps lowered(job, steps);
    std::vector<int> waits(kRanks);
    RunTogether(kRanks, [&](World& world) {
      CountingDevice device(LazyDevice::First::lowest);
      StreamWorld ranks(world, device);
      auto run = RunSteps(job, lowered.steps(), {.device = &device}, ranks);
      waits[static_cast<std::size_t>(world.rank())] = device.waits;
      return run;
    });
    return waits[0];
  };
  EXPECT_EQ(waits_in(3) - waits_in(2), 2);  // where a step begins and where it ends
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
}  // namespace tidemark::streams_test
