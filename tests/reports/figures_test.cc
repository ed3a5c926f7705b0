// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "models/job/throughput.h"
#include "models/machine/device_bytes.h"
#include "reports/summarise/title.h"

namespace tidemark::figures_test {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;

Machine SmallMachine() {
  Machine machine;
  machine.context = {Bytes(300 * kMiB), Bytes(400 * kMiB), Bytes(500 * kMiB)};
  machine.communicator = Bytes(200 * kMiB);
  machine.workspace = Bytes(32 * kMiB);
  return machine;
}

TEST(DeviceBytes, addsContextCommunicatorsAndWorkspaceToWhatTheAllocatorReserved) {
  const Band band = DeviceBytes(SmallMachine(), {Bytes(1000 * kMiB), Bytes(1100 * kMiB), 2});
  EXPECT_EQ(band.low, Bytes((1000 + 300 + 2 * 200 + 32) * kMiB));
  EXPECT_EQ(band.expected, Bytes((1100 + 400 + 2 * 200 + 32) * kMiB));
  EXPECT_EQ(band.high, Bytes((1100 + 500 + 2 * 200 + 32) * kMiB));
}

TEST(DeviceBytes, withoutAnAllocatorWidensTheBandByShares) {
  const Band band = DeviceBytes(SmallMachine(), {Bytes(1000 * kMiB), std::nullopt, 0});
  EXPECT_EQ(band.low, Bytes((1000 + 300 + 32) * kMiB));
  EXPECT_EQ(band.expected, Bytes(1000 * kMiB / 100 * 104 + (400 + 32) * kMiB));
  EXPECT_EQ(band.high, Bytes((1150 + 500 + 32) * kMiB));  // 15 % of 1000, a whole number of 2 MiB pages
}

TEST(DeviceBytes, isOrderedFromLowToHigh) {
  for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, kMiB, 81234567890}) {
    for (const auto reserved : {std::optional<Bytes>(), std::optional<Bytes>(Bytes(bytes))}) {
      const Band band = DeviceBytes(SmallMachine(), {Bytes(bytes), reserved, 1});
      EXPECT_LE(band.low, band.expected);
      EXPECT_LE(band.expected, band.high);
    }
  }
}

TEST(UsableMemory, isTheAllocatorsShareAndWhatTheBandHasBesideIt) {
  Machine machine = SmallMachine();
  machine.device_memory = Bytes(10'000 * kMiB);
  const Bytes all(10'000 * kMiB);
  for (const double share : {0.0, 1.0}) {
    const Band usable = UsableMemory(machine, share, 2);
    EXPECT_TRUE(usable.low == all && usable.expected == all && usable.high == all) << share;
  }
  const Band quarter = UsableMemory(machine, 0.25, 2);
  EXPECT_EQ(quarter.low, Bytes((2500 + 300 + 2 * 200 + 32) * kMiB));
  EXPECT_EQ(quarter.expected, Bytes((2500 + 400 + 2 * 200 + 32) * kMiB));
  EXPECT_EQ(quarter.high, Bytes((2500 + 500 + 2 * 200 + 32) * kMiB));
  // What an allocator just may have fits, and a page more does not.
  const auto fits = [&](std::int64_t reserved) {
    return Fits(DeviceBytes(machine, {Bytes(kMiB), Bytes(reserved * kMiB), 2}), quarter.high);
  };
  EXPECT_TRUE(fits(2500));
  EXPECT_FALSE(fits(2502));
}

TEST(Fits, looksAtTheHighEndOfTheBand) {
  const Band band{Bytes(1), Bytes(2), Bytes(10)};
  EXPECT_TRUE(Fits(band, Bytes(10)));
  EXPECT_FALSE(Fits(band, Bytes(9)));
}

Job SmallJob() {
  Job job;
  job.network.name = "gpt2";
  job.strategy = "ddp-last";
  job.sequence_length = 1024;
  job.micro_batch_size = 2;
  job.accumulation_steps = 4;
  return job;
}

TEST(Throughput, dividesTheTokensOfAStepOverAllRanks) {
  Job job = SmallJob();
  job.layout.dp = 8;
  EXPECT_EQ(TokensPerRank(job), 2 * 4 * 1024);  // every rank has its own sequences
  job.layout.tp = 2;
  job.layout.pp = 2;
  EXPECT_EQ(TokensPerRank(job), 2 * 4 * 1024 / 4.0);  // four ranks share each sequence
}

TEST(Throughput, countsTheTokensThatReachAnUpdate) {
  Job job = SmallJob();
  job.last_window.microbatches = 3;
  EXPECT_EQ(TokensPerRank(job), 2 * 4 * 1024);  // carry-over: the next epoch completes the window
  for (const LastWindow::Policy policy : {LastWindow::Policy::rescaled, LastWindow::Policy::not_rescaled}) {
    job.last_window.policy = policy;
    EXPECT_EQ(TokensPerRank(job), 2 * 3 * 1024);
  }
  job.last_window.policy = LastWindow::Policy::drop;
  EXPECT_EQ(TokensPerRank(job), 0);
}

TEST(Throughput, doesNotCountWhatComesBehindTheLastStepOfACustomLoop) {
  Job job = SmallJob();
  job.accumulation_steps = 5;
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = "(i + 1) % 2 == 0";  // steps behind the second and the fourth; the fifth is left over
  EXPECT_EQ(MicrobatchesThatCount(job), 4);
  job.axes.sync.step_expression = "i == 1";
  EXPECT_EQ(MicrobatchesThatCount(job), 2);
  job.axes.sync.step_expression = "i == steps - 1";
  EXPECT_EQ(MicrobatchesThatCount(job), 5);
}

TEST(Throughput, isWorkOverTimeAndMfuItsShareOfThePeak) {
  // 8192 tokens and 2e14 model operations in half a second on a device of 1e15 operations a second.
  const Throughput throughput = MakeThroughput({8192, 2e14, 2.5e14}, Nanos(500'000'000), FlopsPerSec(1e15));
  EXPECT_DOUBLE_EQ(throughput.tokens_per_s_per_gpu, 16384);
  EXPECT_DOUBLE_EQ(throughput.model_tflops_per_gpu, 400);
  EXPECT_DOUBLE_EQ(throughput.mfu, 0.4);
  EXPECT_DOUBLE_EQ(throughput.hfu, 0.5);
}

TEST(Throughput, ofAStepWithoutLengthIsZero) { EXPECT_EQ(MakeThroughput({1, 1, 1}, Nanos(0), FlopsPerSec(1)).mfu, 0); }

TEST(JobTitle, namesOnlyWhatIsDivided) {
  Job job = SmallJob();
  EXPECT_EQ(JobTitle(job), "gpt2, ddp-last, 1 rank, 4 microbatches of 2 x 1024 tokens");
  job.layout.dp = 2;
  job.layout.tp = 4;
  job.accumulation_steps = 1;
  EXPECT_EQ(JobTitle(job), "gpt2, ddp-last, 8 ranks (dp 2, tp 4), 1 microbatch of 2 x 1024 tokens");
}

TEST(JobTitle, saysHowManyMicrobatchesOfAShortWindowRun) {
  Job job = SmallJob();
  job.last_window = {LastWindow::Policy::rescaled, 3};
  EXPECT_EQ(JobTitle(job), "gpt2, ddp-last, 1 rank, 3 of 4 microbatches of 2 x 1024 tokens");
  job.last_window.policy = LastWindow::Policy::carry_over;
  EXPECT_EQ(JobTitle(job), "gpt2, ddp-last, 1 rank, 4 microbatches of 2 x 1024 tokens");
}

}  // namespace
}  // namespace tidemark::figures_test
