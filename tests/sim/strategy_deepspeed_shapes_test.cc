// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <random>

#include "tests/sim/deepspeed_job.h"
#include "tests/sim/dice.h"

namespace tidemark::deepspeed::strategy_deepspeed_shapes_test {
namespace {

TEST(DeepSpeedShapes, EveryShapeIsSoundInEveryStepAndBothEnginesAgree) {
  for (const std::string& name : kAll) {
    for (const std::int64_t microbatches : {1, 2, 4}) {
      for (const std::int64_t ranks : {1, 3, 4}) {
        Job job = OracleJob(name, microbatches);
        job.layout.dp = ranks;
        std::get<Decoder>(job.network.shape).tied_embeddings = microbatches == 2;
        for (const StepKind kind : {StepKind::first, StepKind::second, StepKind::steady}) {
          ExpectEnginesAgree(job, kind);
        }
      }
    }
  }
}

TEST(DeepSpeedShapes, PartsThatDoNotDivideArePadded) {
  Job job = OracleJob("deepspeed-zero1", 2);
  job.layout.dp = 3;
  // 110,633,984 up to the next multiple of 2 * 3 is 110,633,988.
  EXPECT_EQ(PayloadsOf(job, CollectiveKind::all_gather), (std::vector<std::int64_t>{110'633'988}));
  const Ledger ledger = LedgerOf(job);
  EXPECT_EQ(ledger.at_window_end[Category::parameter].count(), 2 * 110'633'988);
  EXPECT_EQ(ledger.at_window_end[Category::optimizer].count(), 12 * 110'633'988 / 3);
}

TEST(DeepSpeedShapes, FrozenParametersAreNoPartOfTheFlatTensor) {
  for (const std::string& name : kAll) {
    Job job = OracleJob(name, 2);
    job.network.trainable = {"head.*"};
    const std::int64_t trained = 32'769'024;  // final norm and head
    const Ledger ledger = LedgerOf(job);
    EXPECT_EQ(ledger.at_window_end[Category::parameter].count(), 2 * kP) << name;
    EXPECT_EQ(RowOf(job, "all_reduce").payload.count() / RowOf(job, "all_reduce").count,
              SizeOf(job.axes.precision.reduce).count() * trained)
        << name;
  }
}

TEST(DeepSpeedShapes, LongModelsFoldIntoLoopsAndCountAsIfWrittenOut) {
  Job job = OracleJob("deepspeed-zero2", 2);
  std::get<Decoder>(job.network.shape).layers = 200;  // 2,320,384,000 parameters and more: several flushes
  job.axes.sync.bucket_elements = 100'000'000;
  std::int64_t elements = 0, flushes = 0;
  for (const std::int64_t flush : FlushesOf(job)) {
    elements += flush;
    EXPECT_LE(flush, 100'000'000);
    ++flushes;
  }
  EXPECT_EQ(elements, 2 * (2 * kHead + 1024 + 200 * std::int64_t{11'274'240}));
  EXPECT_GE(flushes, 2 * 24);
  ExpectEnginesAgree(job, StepKind::steady);
}

/// Flushes of one backward pass by DeepSpeed's rule over the gradients' arrival order.
std::vector<std::int64_t> FlushesByRule(std::int64_t layers, std::int64_t bucket) {
  std::vector<std::int64_t> arrivals{kHead, 1024};
  for (std::int64_t i = 0; i < layers; ++i) {
    for (const std::int64_t n : {2'883'584, 5'767'168, 1'024, 1'048'576, 262'144, 262'144, 1'048'576, 1'024}) {
      arrivals.push_back(n);
    }
  }
  arrivals.push_back(kHead);
  std::vector<std::int64_t> flushes;
  std::int64_t fill = 0;
  for (const std::int64_t n : arrivals) {
    if (fill + n > bucket && fill > 0) {
      flushes.push_back(fill);
      fill = 0;
    }
    fill += n;
  }
  flushes.push_back(fill);
  return flushes;
}

TEST(DeepSpeedShapes, RandomBucketsFlushAsTheRuleSaysHoweverTheLayersAreFolded) {
  std::mt19937_64 random(20);
  const auto pick = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  for (int i = 0; i < Rounds(120); ++i) {
    Job job = OracleJob("deepspeed-zero2", 1);
    const std::int64_t layers = pick(1, 40);
    std::get<Decoder>(job.network.shape).layers = layers;
    job.axes.sync.overlap = pick(0, 1) == 1;
    job.axes.sync.bucket_elements = std::int64_t{1} << pick(10, 29);
    job.axes.sync.bucket_elements += pick(0, job.axes.sync.bucket_elements);
    EXPECT_EQ(FlushesOf(job), FlushesByRule(layers, job.axes.sync.bucket_elements))
        << layers << " layers, bucket " << job.axes.sync.bucket_elements;
  }
}

TEST(DeepSpeedShapes, RandomJobsAreSoundAndBothEnginesAgree) {
  std::mt19937_64 random(7);
  const auto pick = [&](std::int64_t from, std::int64_t to) {
    return std::uniform_int_distribution<std::int64_t>(from, to)(random);
  };
  for (int i = 0; i < Rounds(250); ++i) {
    Job job = OracleJob(kAll[static_cast<std::size_t>(pick(0, 4))], pick(1, 5));
    job.layout.dp = pick(1, 5);
    Decoder& decoder = std::get<Decoder>(job.network.shape);
    decoder.layers = pick(1, 12);
    decoder.tied_embeddings = pick(0, 1) == 1;
    Axes& axes = job.axes;
    axes.sync.bucket_elements = std::int64_t{1} << pick(18, 29);
    if (axes.shard.optimizer && job.strategy != "deepspeed-bf16") {
      axes.sync.overlap = pick(0, 1) == 1;
      axes.sync.multi_rank_bucket = pick(0, 1) == 1;
      axes.sync.collective = pick(0, 2) == 0 ? CollectiveKind::all_reduce : CollectiveKind::reduce_scatter;
    } else if (job.strategy == "deepspeed-bf16") {
      axes.sync.bucket_elements = 500'000'000;
    }
    axes.precision.reduce = pick(0, 2) == 0 ? DType::fp32 : DType::bf16;
    job.optimizer = job.strategy == "deepspeed-zero0" || pick(0, 2) > 0 ? OptimizerKind::adamw : OptimizerKind::sgd;
    ASSERT_EQ(Refusal(job), "") << job.strategy;
    ExpectEnginesAgree(job, std::array{StepKind::first, StepKind::second, StepKind::steady}[i % 3]);
  }
}

// A tower that serves both sides is walked twice in a forward pass: its first set is prefetched for the second walk
// while the flat buffer that the first one takes its parameters from is not given back yet.
TEST(DeepSpeedShapes, TwoGathersOfOneSetMayBeUnderWay) {
  Decoder tower;
  tower.layers = 8;
  tower.hidden = 64;
  tower.ffn = 54;
  tower.heads = 8;
  tower.kv_heads = 4;
  tower.head_size = 8;
  tower.vocabulary = 452;
  tower.positions = 64;
  tower.norm = Decoder::Norm::layer;
  tower.ffn_kind = Decoder::Ffn::two_layer;
  tower.rope = tower.causal = false;
  tower.qkv_bias = tower.linear_bias = true;
  tower.dropout = 0.1;
  Job job = OracleJob("deepspeed-zero3", 3);
  job.axes.packing = {true, false};
  job.network.shape = DualEncoder{tower, tower, true, tower.hidden, 1};
  job.sequence_length = 32;
  job.micro_batch_size = 1;
  job.axes.shard.reuse_distance = 49'883;
  job.axes.shard.persistence_threshold = 2'354;
  job.axes.shard.prefetch_elements = 23'135;
  const StepProgram step = Sound(job, StepKind::first);
  const std::vector<Buffer>& buffers = step.roles.front().buffers;
  EXPECT_TRUE(std::any_of(buffers.begin(), buffers.end(),
                          [](const Buffer& buffer) { return buffer.name.ends_with(", copy 2"); }));
}

// Small parameters stay gathered from the first update on. A first step that throws its window away has none.
TEST(DeepSpeedShapes, AFirstStepWithoutAnUpdateKeepsNothingGathered) {
  Job job = OracleJob("deepspeed-zero3", 6);
  job.last_window = {LastWindow::Policy::drop, 1};
  Sound(job, StepKind::first);
  job.last_window.microbatches = 4;
  Sound(job, StepKind::first);
}

}  // namespace
}  // namespace tidemark::deepspeed::strategy_deepspeed_shapes_test
