// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>

#include "models/job/throughput.h"
#include "models/job/validate.h"
#include "reports/summarise/title.h"
#include "sim/predict/predict.h"
#include "sim/program/same_but_for_sizes.h"
#include "tests/sim/oracle_job.h"

// Sequences of 2048 tokens at most and 640 on average: memory is that of a job with 2048, time that of one with 640.

namespace tidemark::uneven_sequences_test {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kLongest = 2048, kMean = 640;

Job OfLength(const std::string& strategy, std::int64_t longest, std::int64_t mean = 0) {
  Job job = OracleJob(strategy, 3);
  job.sequence_length = longest;
  job.mean_sequence_length = mean;
  if (!FindStrategy(strategy)->Accept(job)) {
    job.axes.shard.replicas = 2;  // what HSDP asks for
  }
  return job;
}

Prediction MustPredict(const Job& job, Engine engine = Engine::simulate) {
  PredictOptions options;
  options.engine = engine;
  Result<Prediction> prediction = Predict(job, options);
  EXPECT_TRUE(prediction.ok()) << prediction.error().Text();
  return std::move(*prediction);
}

/// Both engines, once each: Engine::both times them as well, over several runs.
Prediction MustAgree(const Job& job) {
  Prediction simulated = MustPredict(job);
  const Prediction closed = MustPredict(job, Engine::closed_form);
  EXPECT_EQ(simulated.time, closed.time);
  for (std::size_t i = 0; i < simulated.roles.size(); ++i) {
    EXPECT_EQ(simulated.roles[i].peak, closed.roles[i].peak);
  }
  return simulated;
}

TEST(UnevenSequences, HaveTheMemoryOfTheLongestAndTheTimeOfTheMean) {
  for (const Strategy& strategy : AllStrategies()) {
    const std::string& name = strategy.defaults.name;
    SCOPED_TRACE(name);
    const Job uneven = OfLength(name, kLongest, kMean);
    ASSERT_TRUE(Validate(uneven).ok());
    const Prediction prediction = MustAgree(uneven);
    const Prediction longest = MustPredict(OfLength(name, kLongest)), mean = MustPredict(OfLength(name, kMean));
    EXPECT_EQ(prediction.roles.front().peak, longest.roles.front().peak);
    EXPECT_EQ(prediction.roles.front().reserved, longest.roles.front().reserved);
    EXPECT_EQ(prediction.time, mean.time);
    EXPECT_EQ(prediction.model_flops, mean.model_flops);
    EXPECT_LT(prediction.time.step, longest.time.step);
  }
}

TEST(UnevenSequences, SendWhatTheMeanSends) {
  Job job = OfLength("nanotron", kLongest, kMean);
  job.layout.tp = 2;
  job.layout.sp = true;
  Job mean = OfLength("nanotron", kMean);
  mean.layout = job.layout;
  const Prediction sent = MustAgree(job), expected = MustPredict(mean);
  ASSERT_EQ(sent.communication.size(), expected.communication.size());
  for (std::size_t i = 0; i < sent.communication.size(); ++i) {
    EXPECT_EQ(sent.communication[i].payload, expected.communication[i].payload);
    EXPECT_EQ(sent.communication[i].wire, expected.communication[i].wire);
  }
}

// 4 ranks, 3 microbatches of 2 sequences of 640 tokens each.
TEST(UnevenSequences, CountTokensAtTheMeanAndSaySo) {
  const Job job = OfLength("ddp-last", kLongest, kMean);
  EXPECT_EQ(TokensPerRank(job), 3 * 2 * 640);
  EXPECT_THAT(JobTitle(job), HasSubstr("3 microbatches of 2 x 2048 tokens at most, 640 on average"));
}

// A loss takes as many chunks of a mean sequence as of the longest, so that both programs are alike.
TEST(UnevenSequences, TakeTheirLossInAsManyChunks) {
  for (const Partition::Loss loss : {Partition::Loss::chunked, Partition::Loss::fused}) {
    for (const std::int64_t chunk_tokens : {0, 1000, 4000}) {
      Job job = OfLength("fsdp2-defer", kLongest, kMean);
      job.axes.loss = loss;
      job.axes.loss_chunk_tokens = chunk_tokens;
      MustAgree(job);
    }
  }
  Job job = OfLength("ddp-last", kLongest, 3);
  job.axes.loss = Partition::Loss::chunked;
  EXPECT_THAT(Validate(job).error().Text(), HasSubstr("8 chunks of the loss"));
}

TEST(UnevenSequences, AreRefusedWhereTheyMakeNoSense) {
  const auto refusal = [](const Job& job) {
    const Status status = Validate(job);
    return status ? std::string() : status.error().Text();
  };
  EXPECT_EQ(refusal(OfLength("ddp-last", kLongest, kLongest)), "");
  EXPECT_THAT(refusal(OfLength("ddp-last", kLongest, kLongest + 1)), HasSubstr("longer than the longest"));
  Job scattered = OfLength("nanotron", kLongest, 641);
  scattered.layout.tp = 2;
  EXPECT_EQ(refusal(scattered), "");
  scattered.layout.sp = true;
  EXPECT_THAT(refusal(scattered), HasSubstr("do not divide over 2 sequence-parallel ranks"));
  Job table = OfLength("ddp-last", 2, 1);
  table.network.shape = Table{{TableRow{}}};
  EXPECT_THAT(refusal(table), HasSubstr("samples of one size"));
}

TEST(SameButForSizes, TellsAnotherProgramFromAnotherSize) {
  const auto lowered = [](const Job& job) { return *Lower(job, StepKind::steady); };
  const StepProgram step = lowered(OfLength("ddp-last", kLongest));
  EXPECT_TRUE(SameButForSizes(step, lowered(OfLength("ddp-last", kMean))));
  EXPECT_FALSE(SameButForSizes(step, lowered(OfLength("ddp-every", kLongest))));
  Job more = OfLength("ddp-last", kLongest);
  more.accumulation_steps = 5;
  EXPECT_FALSE(SameButForSizes(step, lowered(more)));
}

}  // namespace
}  // namespace tidemark::uneven_sequences_test
