// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <utility>

#include "models/job/read.h"
#include "models/job/validate.h"
#include "sim/observe/observed_network.h"
#include "sim/predict/predict.h"
#include "tests/sim/oracle_job.h"

// One predicted microbatch is observed, and every strategy is asked about the network that comes out.

namespace tidemark::observed_predictions_test {
namespace {

const char* const kStrategies[] = {"ddp-last",           "ddp-every",     "single-backward", "fsdp1",
                                   "fsdp2-scatter-each", "fsdp2-defer",   "deepspeed-zero0", "deepspeed-zero1",
                                   "deepspeed-zero2",    "megatron",      "nanotron",        "jax-multisteps",
                                   "colossalai-zero1",   "deepspeed-bf16"};

Prediction Predicted(const Job& job) {
  EXPECT_TRUE(Validate(job).ok()) << Validate(job).error().Text();
  Result<Prediction> prediction = Predict(job, {});
  EXPECT_TRUE(prediction.ok()) << job.strategy << ": " << prediction.error().Text();
  return std::move(*prediction);
}

/// As it is measured: one rank, one microbatch.
ObservedNetwork Observed(Job job) {
  job.accumulation_steps = 1;
  job.layout.dp = 1;
  Result<ObservedNetwork> network = ObserveNetwork(*Predicted(job).roles[0].trace, {.samples = job.micro_batch_size});
  EXPECT_TRUE(network.ok()) << network.error().Text();
  return std::move(*network);
}

Job ResNet(const std::string& strategy) {
  const Result<Job> job =
      ReadJob(TIDEMARK_TESTS "/jobs/resnet18-cifar10.yaml", {{"strategy=" + strategy}, {}}, KnownStrategies());
  EXPECT_TRUE(job.ok()) << strategy << ": " << job.error().Text();
  return *job;
}

Job With(Job job, const Table& table) {
  job.network = {"observed network", table, {}};
  return job;
}

TEST(ObservedPredictions, OfATableNetworkAreThoseOfTheTable) {
  const Table table = Observed(ResNet("ddp-last")).table;
  for (const char* strategy : kStrategies) {
    const Job job = ResNet(strategy);
    const Prediction expected = Predicted(job), found = Predicted(With(job, table));
    EXPECT_EQ(found.roles[0].peak.allocated, expected.roles[0].peak.allocated) << strategy;
    EXPECT_EQ(found.roles[0].peak.by_category, expected.roles[0].peak.by_category) << strategy;
  }
}

TEST(ObservedPredictions, OfATableNetworkScaleWithTheSamples) {
  const Table table = Observed(ResNet("ddp-last")).table;
  for (const std::int64_t samples : {1, 32, 96, 256}) {
    Job job = ResNet("ddp-every");
    job.micro_batch_size = samples;
    EXPECT_EQ(Predicted(With(job, table)).roles[0].peak.allocated, Predicted(job).roles[0].peak.allocated) << samples;
  }
}

TEST(ObservedPredictions, OfATableNetworkHaveItsTimes) {
  const Table table = Observed(ResNet("ddp-last")).table;
  const Prediction whole = Predicted(ResNet("ddp-last"));
  std::int64_t forward = 0;
  for (const TableRow& row : table.rows) {
    forward += row.forward_ns;
  }
  std::int64_t expected = 0;
  for (const Slice& slice : whole.roles[0].trace->slices) {
    const Trace& trace = *whole.roles[0].trace;
    const bool is_forward = slice.span != kNoSpan && trace.spans[slice.span].phase == "forward";
    expected += is_forward ? (slice.end - slice.start).count() : 0;
  }
  EXPECT_EQ(4 * forward, expected);  // in each of the four microbatches
}

std::int64_t PeakOf(const Job& job) { return Predicted(job).roles[0].peak.allocated.count(); }

/// An observed decoder cannot tell where its parameters begin and end: a row has one, of all elements that its
/// gradients have. That is nothing to a strategy that has all gradients at once in any case.
TEST(ObservedPredictions, OfADecoderAreExactWhereNothingIsCutAtParameters) {
  const ObservedNetwork network = Observed(OracleJob("ddp-last", 1));
  EXPECT_EQ(network.parameters, ParameterCount(OracleJob("ddp-last", 1).network));
  for (const char* strategy : {"ddp-last", "ddp-every", "single-backward", "deepspeed-zero0", "deepspeed-zero1",
                               "jax-multisteps", "colossalai-zero1", "deepspeed-bf16"}) {
    const Job job = OracleJob(strategy, 4);
    EXPECT_EQ(PeakOf(With(job, network.table)), PeakOf(job)) << strategy;
  }
}

/// What is gathered, packed or added parameter by parameter or unit by unit is so row by row: so many bytes may then be
/// there at once that were not, or not be there that were.
TEST(ObservedPredictions, OfADecoderAreWithinARowWhereSomethingIs) {
  const Job measured = OracleJob("ddp-last", 1);
  const Table table = Observed(measured).table;
  std::int64_t gradients = 0, transient = 0;
  for (const TableRow& row : table.rows) {
    gradients = std::max(gradients, 4 * row.parameters);
    transient = std::max(transient, row.backward_transient_bytes.value_or(row.transient_bytes));
  }
  const std::pair<const char*, std::int64_t> bounds[] = {
      {"fsdp2-scatter-each", gradients},
      {"fsdp2-defer", gradients},
      {"megatron", gradients},
      {"nanotron", gradients},
      // Embedding and head, which are two rows, are one unit.
      {"fsdp1", 2 * gradients},
      // The bucket is made where a row ends, which has kept all that it needs.
      {"deepspeed-zero2", transient},
  };
  for (const auto& [strategy, bound] : bounds) {
    Job job = OracleJob(strategy, 4);
    job.axes.loss = measured.axes.loss;  // what a trace has seen is what every strategy is asked about
    EXPECT_LE(std::abs(PeakOf(With(job, table)) - PeakOf(job)), bound) << strategy;
  }
}

}  // namespace
}  // namespace tidemark::observed_predictions_test
