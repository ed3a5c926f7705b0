// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <vector>

#include "sim/engine/closed_form.h"
#include "sim/engine/simulate.h"
#include "sim/program/text.h"
#include "tests/sim/dice.h"
#include "tests/sim/ledger.h"
#include "tests/sim/oracle_job.h"
#include "tests/sim/sound_program.h"

// What rank 0 keeps of Megatron's distributed optimizer: its range of every bucket, [0, padded elements / ranks), less
// what is padding there (megatron/core/optimizer/distrib_optimizer.py). A bucket ends at a multiple of lcm(ranks, 128),
// a parameter starts at one of 64; parameters lie from the network's end to its beginning. Per element 12 bytes: fp32
// masters and Adam's two moments.

namespace tidemark::strategy_megatron_ranges_test {
namespace {

/// Blocks of one weight each: `first`, `layers` of `layer`, `last`.
Job TableJob(std::int64_t first, std::int64_t layers, std::int64_t layer, std::int64_t last, std::int64_t ranks) {
  Job job = OracleJob("megatron-dist-opt", 2);
  const auto row = [](const char* name, std::int64_t count, std::int64_t parameters) {
    return TableRow{name, count, parameters, 2048, 0, {}, 8192, 16384, 0, 0};
  };
  job.network = {"table", Table{{row("first", 1, first), row("layer", layers, layer), row("last", 1, last)}}, {}};
  job.axes.sync.bucket_elements = 200;
  job.layout.dp = ranks;
  return job;
}

Job TiedJob(std::int64_t stages, std::int64_t ranks) {
  Job job = OracleJob("megatron-dist-opt", 4);
  std::get<Decoder>(job.network.shape).tied_embeddings = true;
  job.layout.pp = stages;
  job.layout.dp = ranks;
  return job;
}

/// Elements of each update of a step, in issue order.
std::vector<std::int64_t> Updates(const Job& job, std::size_t role = 0) {
  std::vector<std::int64_t> elements;
  const Program program = Unroll(Sound(job).roles.at(role));
  for (const Node& node : program.nodes) {
    const auto* compute = std::get_if<Compute>(&node);
    const auto* update = compute == nullptr ? nullptr : std::get_if<OptimizerUpdate>(&compute->op);
    if (update != nullptr) {
      elements.push_back(update->elements);
    }
  }
  return elements;
}

/// Bytes of masters and moments that a role holds for good, by 12 bytes.
std::int64_t OwnedElements(const Job& job, std::size_t role = 0) {
  Bytes bytes;
  const StepProgram step = Sound(job);
  for (const Buffer& buffer : step.roles.at(role).buffers) {
    bytes += buffer.category == Category::optimizer ? buffer.bytes() * buffer.count() : Bytes(0);
  }
  EXPECT_EQ(bytes.count() % 12, 0);
  return bytes.count() / 12;
}

TEST(MegatronRanges, RankZeroOwnsTheBeginningOfEveryPaddedBucketLessThePadding) {
  // Buckets [0,10) [64,134) [192,262) and [0,70) [128,228).
  // Four ranks: of 384 the first 96, which are 10 + 32 elements; of 256 the first 64.
  EXPECT_EQ(Updates(TableJob(100, 3, 70, 10, 4)), (std::vector<std::int64_t>{42, 64}));
  // Three, lcm(3, 128) = 384: 128 of 384 each, 10 + 64 elements and 70.
  EXPECT_EQ(Updates(TableJob(100, 3, 70, 10, 3)), (std::vector<std::int64_t>{74, 70}));
  // Two: 192 of 384, 10 + 70; 128 of 256, 70.
  EXPECT_EQ(Updates(TableJob(100, 3, 70, 10, 2)), (std::vector<std::int64_t>{80, 70}));
  EXPECT_EQ(Updates(TableJob(100, 3, 70, 10, 1)), (std::vector<std::int64_t>{10 + 2 * 70, 70 + 100}));
  for (const auto& [ranks, owned] : std::vector<std::pair<std::int64_t, std::int64_t>>{{4, 106}, {3, 144}, {1, 320}}) {
    const Job job = TableJob(100, 3, 70, 10, ranks);
    EXPECT_EQ(OwnedElements(job), owned);
    EXPECT_EQ(Audit(Sound(job), job.machine).at_window_end[Category::optimizer].count(), 12 * owned);
  }
}

TEST(MegatronRanges, ManyLayersOwnTheirRangesWhereBucketsRepeat) {
  // The last block and two layers: 42, as above. Then buckets of three layers, [0,70) [128,198) [256,326) padded to
  // 384: 70 of the first 96. 50 layers make 16 of them; the first block's 100 are padded to 128, of which 32.
  EXPECT_EQ(OwnedElements(TableJob(100, 50, 70, 10, 4)), 42 + 16 * 70 + 32);
  EXPECT_EQ(Updates(TableJob(100, 50, 70, 10, 4)).size(), 18U);
}

TEST(MegatronRanges, OfTheOracleModelAQuarterOfEveryBucket) {
  EXPECT_EQ(Updates(OracleJob("megatron-dist-opt", 4)), (std::vector<std::int64_t>{41'419'776 / 4, 69'214'208 / 4}));
  EXPECT_EQ(OwnedElements(OracleJob("megatron-dist-opt", 4)), 110'633'984 / 4);
}

TEST(MegatronRanges, OfThreeRanksTheFirstOwnsItsShareOfThePaddedBuckets) {
  Job job = OracleJob("megatron-dist-opt", 2);
  job.layout.dp = 3;
  // 41,419,776 is a multiple of 384; 69,214,208 is padded to 69,214,464, all of it behind the first third.
  EXPECT_EQ(OwnedElements(job), 41'419'776 / 3 + 69'214'464 / 3);
}

TEST(MegatronRanges, WithoutOverlapRankZeroOwnsTheEndOfTheNetwork) {
  Job job = OracleJob("megatron-dist-opt", 2);
  job.axes.sync.overlap = false;
  // A quarter of 110,633,984, all of it in the head's 32,768,000.
  EXPECT_EQ(Updates(job), (std::vector<std::int64_t>{27'658'496}));
}

TEST(MegatronRanges, ASharedEmbeddingIsCutByItself) {
  // Two layers and the embedding on the first stage: 22,548,480 = 384 * 58,720; 32,768,000 up to 384 * 85,334.
  EXPECT_EQ(Updates(TiedJob(2, 3)), (std::vector<std::int64_t>{7'516'160, 10'922'752}));
  EXPECT_EQ(OwnedElements(TiedJob(2, 3)), 18'438'912);
  // The copy lies first on the last stage, then the norm's 1,024 and two layers: 22,549,504 up to 384 * 58,723.
  EXPECT_EQ(Updates(TiedJob(2, 3), 1), (std::vector<std::int64_t>{10'922'752, 7'516'544}));
  EXPECT_EQ(OwnedElements(TiedJob(2, 3), 1), 18'439'296);
}

TEST(MegatronRanges, WithoutMastersOnlyMomentsAreCut) {
  Job job = TableJob(100, 3, 70, 10, 4);
  job.axes.precision.params = job.axes.precision.gradients = DType::fp32;
  job.axes.precision.master.reset();
  EXPECT_EQ(Audit(Sound(job), job.machine).at_window_end[Category::optimizer].count(), 8 * 106);
}

TEST(MegatronRanges, RandomBucketsAreSoundAndBothEnginesAgree) {
  Dice dice(3);
  for (int i = 0; i < Rounds(150); ++i) {
    Job job =
        TableJob(dice.Number(1, 400), dice.Number(1, 30), dice.Number(1, 300), dice.Number(1, 400), dice.Number(1, 9));
    job.axes.sync.bucket_elements = dice.Number(1, 900);
    job.axes.sync.overlap = !dice.OneIn(5);
    job.accumulation_steps = dice.Number(1, 4);
    for (const StepKind kind : {StepKind::first, StepKind::steady}) {
      const StepProgram step = Sound(job, kind);
      const std::vector<Costs> costs = PriceAll(step, job.machine);
      ASSERT_EQ(Simulate(step, costs), EvaluateClosedForm(step, costs)) << i;
    }
  }
}

}  // namespace
}  // namespace tidemark::strategy_megatron_ranges_test
