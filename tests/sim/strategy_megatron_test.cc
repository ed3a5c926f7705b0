// SPDX-License-Identifier: Apache-2.0
#include <set>

#include "sim/engine/closed_form.h"
#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/dice.h"
#include "tests/sim/oracle_job.h"

// Expected values: worked numbers of Megatron-LM for the oracle model of P = 110,633,984 parameters (55,321,600 on each
// of two tensor-parallel ranks), 4 data-parallel ranks, 4 microbatches; and the rules of _ParamAndGradBuffer
// (megatron/core/distributed/param_and_grad_buffer.py) worked out by hand beside each value.

namespace tidemark::strategy_megatron_test {
namespace {

constexpr std::int64_t kP = 110'633'984;
constexpr std::int64_t kEmbedding = 32'768'000;  // as many as the head
constexpr const char* kBoth[] = {"megatron", "megatron-dist-opt"};
constexpr StepKind kSteps[] = {StepKind::first, StepKind::second, StepKind::steady};

/// Collectives over the data-parallel group, in issue order.
std::vector<Collective> CollectivesOf(const Program& program) {
  std::vector<Collective> all;
  for (const Node& node : Unroll(program).nodes) {
    const auto* collective = std::get_if<Collective>(&node);
    if (collective != nullptr && program.groups[collective->group.index].name == "dp") {
      all.push_back(*collective);
    }
  }
  return all;
}

/// Elements of the buckets of one role, in the order in which they are reduced.
std::vector<std::int64_t> Buckets(const Job& job, StepKind kind = StepKind::steady, std::size_t role = 0) {
  std::vector<std::int64_t> elements;
  for (const Collective& collective : CollectivesOf(Sound(job, kind).roles.at(role))) {
    if (collective.kind != CollectiveKind::all_gather) {
      elements.push_back(collective.payload_elements);
    }
  }
  return elements;
}

/// Kernels of one name, in issue order, with the number of collectives before each.
std::vector<std::int64_t> CollectivesBefore(const Program& program, const std::string& kernel) {
  std::vector<std::int64_t> before;
  std::int64_t collectives = 0;
  for (const Node& node : Unroll(program).nodes) {
    collectives += std::holds_alternative<Collective>(node) ? 1 : 0;
    const auto* compute = std::get_if<Compute>(&node);
    if (compute != nullptr && program.names[compute->name.index] == kernel) {
      before.push_back(collectives);
    }
  }
  return before;
}

std::int64_t CountScales(const Program& program) {
  std::int64_t count = 0;
  for (const Node& node : Unroll(program).nodes) {
    count += std::holds_alternative<Scale>(node) ? 1 : 0;
  }
  return count;
}

/// Blocks of one weight each: `first`, `layers` of `layer`, `last`.
Job TableJob(const char* strategy, std::int64_t first, std::int64_t layers, std::int64_t layer, std::int64_t last) {
  Job job = OracleJob(strategy, 2);
  const auto row = [](const char* name, std::int64_t count, std::int64_t parameters) {
    return TableRow{name, count, parameters, 2048, 0, {}, 8192, 16384, 0, 0};
  };
  job.network = {"table", Table{{row("first", 1, first), row("layer", layers, layer), row("last", 1, last)}}, {}};
  return job;
}

std::string Refusal(const Job& job) {
  const Status status = FindStrategy(job.strategy)->Accept(job);
  return status.ok() ? std::string() : status.error().where + ": " + status.error().message;
}

void ExpectEnginesAgree(const Job& job, StepKind kind) {
  const StepProgram step = Sound(job, kind);
  const std::vector<Costs> costs = PriceAll(step, job.machine);
  EXPECT_EQ(Simulate(step, costs), EvaluateClosedForm(step, costs)) << job.strategy;
}

TEST(Megatron, BucketsCloseAtFortyMillionElements) {
  for (const char* name : kBoth) {
    EXPECT_EQ(Buckets(OracleJob(name, 4)), (std::vector<std::int64_t>{41'419'776, 69'214'208})) << name;
  }
}

TEST(Megatron, OneOfTwoTensorParallelRanksHasOneBucket) {
  for (const char* name : kBoth) {
    for (const bool scattered : {false, true}) {
      Job job = OracleJob(name, 4);
      job.layout.tp = 2;
      job.layout.sp = scattered;
      EXPECT_EQ(Buckets(job), (std::vector<std::int64_t>{55'321'600})) << name;
    }
  }
}

TEST(Megatron, ManyRanksMakeBucketsOfAMillionElementsARank) {
  Job job = OracleJob("megatron", 1);
  // Head 32,768,000, norm 1,024 and the last layer's 11,274,240 make 44,043,264; down of the layer before makes
  // 46,926,848, its gate_up 52,694,016, which is the first to reach 50,000,000.
  job.layout.dp = 50;
  EXPECT_EQ(Buckets(job), (std::vector<std::int64_t>{52'694'016, kP - 52'694'016}));
}

TEST(Megatron, WithoutOverlapEverythingIsOneBucket) {
  for (const char* name : kBoth) {
    Job job = OracleJob(name, 4);
    job.axes.sync.overlap = false;
    EXPECT_EQ(Buckets(job), (std::vector<std::int64_t>{kP})) << name;
  }
}

TEST(Megatron, OnlyTheFirstStageHasSeveralBuckets) {
  Job job = OracleJob("megatron", 4);
  job.layout.pp = 2;
  job.axes.sync.bucket_elements = 10'000'000;
  // First stage: two layers (8,650,752 of down and gate_up, then norm2 1,024, wo 1,048,576, wv 262,144 and wk 262,144,
  // which makes 10,224,640), the rest of a layer and down and gate_up of the next (1,049,600 + 8,650,752 = 9,700,352,
  // norm2, wo: 10,749,952), then wv, wk, wq, norm1 (1,573,888) and the embedding.
  EXPECT_EQ(Buckets(job), (std::vector<std::int64_t>{10'224'640, 10'749'952, 1'573'888 + kEmbedding}));
  EXPECT_EQ(Buckets(job, StepKind::steady, 1), (std::vector<std::int64_t>{2 * 11'274'240 + 1'024 + kEmbedding}));
}

TEST(Megatron, TheDistributedOptimizerAlignsParametersAndPadsBuckets) {
  Job job = TableJob("megatron-dist-opt", 100, 3, 70, 10);
  job.axes.sync.bucket_elements = 200;
  // [0,10) [64,134) [192,262): closed, 262 up to a multiple of lcm(4, 128); then [0,70) [128,228), up to 256.
  EXPECT_EQ(Buckets(job), (std::vector<std::int64_t>{384, 256}));
  const CategoryBytes live = BookOf(job).at_window_end;
  EXPECT_EQ(live[Category::accumulator].count(), 4 * 640);
  EXPECT_EQ(live[Category::parameter].count(), 2 * 640);
  job.layout.dp = 3;  // lcm(3, 128) = 384
  EXPECT_EQ(Buckets(job), (std::vector<std::int64_t>{384, 384}));
}

TEST(Megatron, WithoutTheDistributedOptimizerNothingIsPadded) {
  Job job = TableJob("megatron", 100, 3, 70, 10);
  job.axes.sync.bucket_elements = 200;
  EXPECT_EQ(Buckets(job), (std::vector<std::int64_t>{10 + 3 * 70, 100}));
  EXPECT_EQ(BookOf(job).at_window_end[Category::accumulator].count(), 4 * 320);
}

TEST(Megatron, OracleBucketsOnThreeRanksArePadded) {
  Job job = OracleJob("megatron-dist-opt", 2);
  job.layout.dp = 3;
  // 41,419,776 = 384 * 107,864; 69,214,208 up to 384 * 180,246.
  EXPECT_EQ(Buckets(job), (std::vector<std::int64_t>{41'419'776, 69'214'464}));
}

TEST(Megatron, AnEmbeddingWithACopyOnAnotherStageIsItsOwnBucketForTheDistributedOptimizer) {
  Job job = OracleJob("megatron-dist-opt", 4);
  std::get<Decoder>(job.network.shape).tied_embeddings = true;
  job.layout.pp = 2;
  const std::int64_t layers = 2 * std::int64_t{11'274'240};
  EXPECT_EQ(Buckets(job), (std::vector<std::int64_t>{layers, kEmbedding}));
  // On the last stage it lies first; the final norm's 1,024 are a multiple of 128 too.
  EXPECT_EQ(Buckets(job, StepKind::steady, 1), (std::vector<std::int64_t>{kEmbedding, layers + 1'024}));
  job.strategy = "megatron";
  job.axes = FindStrategy("megatron")->defaults.axes;
  EXPECT_EQ(Buckets(job), (std::vector<std::int64_t>{layers + kEmbedding}));
}

TEST(Megatron, ATiedEmbeddingOnOneStageIsNotItsOwnBucket) {
  Job job = OracleJob("megatron-dist-opt", 4);
  std::get<Decoder>(job.network.shape).tied_embeddings = true;
  // The final norm, three layers (1,024 + 3 * 11,274,240 = 33,823,744), and down and gate_up of the first.
  EXPECT_EQ(Buckets(job), (std::vector<std::int64_t>{42'474'496, kP - kEmbedding - 42'474'496}));
}

TEST(Megatron, BetweenMicrobatchesARankHoldsEighteenBytesAParameter) {
  const Ledger ledger = BookOf(OracleJob("megatron", 4));
  const CategoryBytes between = ledger.between_microbatches.at(2);
  EXPECT_EQ(between[Category::parameter].count(), 221'267'968);
  EXPECT_EQ(between[Category::accumulator].count(), 442'535'936);
  EXPECT_EQ(between[Category::optimizer].count(), 442'535'936 + 885'071'872);
  EXPECT_EQ(SystemBytes(between).count(), 1'991'411'712);
  EXPECT_EQ(SystemBytes(between).count(), 18 * kP);
  EXPECT_EQ(SystemBytes(ledger.after_optimizer).count(), 1'991'411'712);
}

TEST(Megatron, TheDistributedOptimizerHoldsSixBytesAndTwelveDividedByTheRanks) {
  const Ledger ledger = BookOf(OracleJob("megatron-dist-opt", 4));
  EXPECT_EQ(SystemBytes(ledger.between_microbatches.at(2)).count(), 995'705'856);
  EXPECT_EQ(SystemBytes(ledger.between_microbatches.at(2)).count(), (6 + 12 / 4) * kP);
  EXPECT_EQ(ledger.at_window_end[Category::optimizer].count(), 12 * kP / 4);
}

TEST(Megatron, TensorParallelRanksHoldTheirShare) {
  Job job = OracleJob("megatron-dist-opt", 4);
  job.layout.tp = 2;
  job.layout.sp = true;
  const CategoryBytes between = BookOf(job).between_microbatches.at(2);
  EXPECT_EQ(between[Category::parameter].count(), 110'643'200);
  EXPECT_EQ(between[Category::accumulator].count(), 221'286'400);
  EXPECT_EQ(between[Category::optimizer].count(), 165'964'800);
}

TEST(Megatron, TrafficIsOneReductionInFp32AndOneGather) {
  for (const std::int64_t microbatches : {1, 4}) {
    const StepProgram plain = Sound(OracleJob("megatron", microbatches));
    const std::vector<CommunicationRow> rows = CountCommunication(plain.roles.front());
    ASSERT_EQ(rows.size(), 1U);
    EXPECT_EQ(rows[0].dtype, DType::fp32);
    EXPECT_EQ(rows[0].wire.count(), 663'803'904);
    Bytes wire;
    const StepProgram sharded = Sound(OracleJob("megatron-dist-opt", microbatches));
    for (const CommunicationRow& row : CountCommunication(sharded.roles.front())) {
      EXPECT_EQ(row.dtype, row.kind == "all_gather" ? DType::bf16 : DType::fp32);
      wire += row.wire;
    }
    EXPECT_EQ(wire.count(), 497'852'928);
  }
}

TEST(Megatron, UpdatedParametersAreGatheredBucketByBucket) {
  std::vector<std::int64_t> gathered;
  for (const Collective& collective : CollectivesOf(Sound(OracleJob("megatron-dist-opt", 2)).roles.front())) {
    if (collective.kind == CollectiveKind::all_gather) {
      gathered.push_back(collective.payload_elements);
    }
  }
  EXPECT_EQ(gathered, (std::vector<std::int64_t>{41'419'776, 69'214'208}));
}

TEST(Megatron, ABucketLeavesWhenItIsCompleteButInTheFirstStepNoneDoesBeforeTheEnd) {
  const Job job = OracleJob("megatron", 2);
  const auto before_embedding = [&](StepKind kind) {
    return CollectivesBefore(Sound(job, kind).roles.front(), "embedding.embedding.backward");
  };
  EXPECT_EQ(before_embedding(StepKind::steady), (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(before_embedding(StepKind::first), (std::vector<std::int64_t>{0, 0}));
  EXPECT_EQ(Buckets(job, StepKind::first), Buckets(job, StepKind::steady));
}

TEST(Megatron, TheBufferIsZeroedWhenTheWindowBegins) {
  const Program program = Sound(OracleJob("megatron", 3)).roles.front();
  // Embedding, four layers and head, before anything else.
  EXPECT_EQ(CollectivesBefore(program, "zero gradient buffer"), std::vector<std::int64_t>(6, 0));
}

TEST(Megatron, RanksAreAveragedByScalingTheBufferOrByTheCollective) {
  Job job = OracleJob("megatron", 2);
  const Program scaled = Sound(job).roles.front();
  EXPECT_EQ(CountScales(scaled), 1 + 4 * 8 + 2);  // each parameter's part of its bucket
  EXPECT_EQ(CollectivesOf(scaled).front().reduction, Reduction::sum);
  job.axes.sync.average_in_collective = true;
  const Program averaged = Sound(job).roles.front();
  EXPECT_EQ(CountScales(averaged), 0);
  EXPECT_EQ(CollectivesOf(averaged).front().reduction, Reduction::avg);
}

std::set<std::string> BuffersNamed(const Program& program, const std::string& prefix) {
  std::set<std::string> names;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.name.starts_with(prefix)) {
      names.insert(buffer.name.substr(prefix.size()));
    }
  }
  return names;
}

TEST(Megatron, FusedAccumulationLeavesGradientsToNormsAndEmbedding) {
  Job job = OracleJob("megatron", 2);
  const std::set<std::string> fused = BuffersNamed(Sound(job).roles.front(), "gradient of ");
  EXPECT_EQ(fused, (std::set<std::string>{"embedding.embedding", "layer.norm1", "layer.norm2", "head.norm"}));
  job.axes.buffers.fused_accumulation = false;
  EXPECT_EQ(BuffersNamed(Sound(job).roles.front(), "gradient of ").size(), 1U + 8U + 2U);
}

TEST(Megatron, FusedGemmsAddToTheBufferInFp32) {
  std::int64_t adding = 0;
  for (const Node& node : Unroll(Sound(OracleJob("megatron", 1)).roles.front()).nodes) {
    const auto* compute = std::get_if<Compute>(&node);
    const Gemm* gemm = compute == nullptr ? nullptr : std::get_if<Gemm>(&compute->op);
    if (gemm != nullptr && gemm->accumulate && gemm->output == DType::fp32) {
      ++adding;
    }
  }
  EXPECT_EQ(adding, 4 * 6 + 1);  // q, k, v, o, gate_up, down of each layer, and the head
}

TEST(Megatron, FusedLinearsOfOneShapeShareADummyGradientThatStays) {
  const Ledger first = BookOf(OracleJob("megatron", 2), StepKind::first);
  // 16 bits each of 32,000 x 1,024 (head), 5,632 x 1,024 (gate_up), 1,024 x 2,816 (down), 1,024 x 1,024 (q and o),
  // 256 x 1,024 (k and v).
  const std::int64_t dummies = 2 * (32'768'000 + 5'767'168 + 2'883'584 + 1'048'576 + 262'144);
  EXPECT_EQ(first.between_microbatches.at(0)[Category::workspace].count(), 0);
  EXPECT_EQ(first.between_microbatches.at(1)[Category::workspace].count(), dummies);
  EXPECT_EQ(BookOf(OracleJob("megatron", 2)).between_microbatches.at(0)[Category::workspace].count(), dummies);
}

TEST(Megatron, OfExpertsOneHasADummyGradientAndARouterHasNone) {
  Job job = OracleJob("megatron", 2);
  Experts& experts = std::get<Decoder>(job.network.shape).experts;
  experts.count = 8;
  experts.ffn = 512;
  // 16 bits each of 32,000 x 1,024 (head), 1,024 x 1,024 (q, o, and up of an expert), 256 x 1,024 (k and v) and
  // 1,024 x 512 (down of an expert).
  EXPECT_EQ(BookOf(job).between_microbatches.at(0)[Category::workspace].count(),
            2 * (32'768'000 + 1'048'576 + 262'144 + 524'288));
  EXPECT_TRUE(BuffersNamed(Sound(job).roles.front(), "gradient of ").contains("layer.router"));
}

TEST(Megatron, TheFirstStepLacksMomentsUntilItsUpdate) {
  const Ledger first = BookOf(OracleJob("megatron", 2), StepKind::first);
  EXPECT_EQ(SystemBytes(first.at_window_end).count(), 10 * kP);
  EXPECT_EQ(SystemBytes(first.after_optimizer).count(), 18 * kP);
}

TEST(Megatron, Fp32ParametersHaveNoMasters) {
  Job job = OracleJob("megatron", 2);
  job.axes.precision.params = job.axes.precision.gradients = DType::fp32;
  EXPECT_NE(Refusal(job).find("none of fp32 ones"), std::string::npos);
  job.axes.precision.master.reset();
  EXPECT_EQ(SystemBytes(BookOf(job).at_window_end).count(), 16 * kP);
}

TEST(Megatron, WhatTheSystemDoesNotHaveIsRefused) {
  const auto refusal = [](const char* name, auto change) {
    Job job = OracleJob(name, 4);
    change(job);
    return Refusal(job);
  };
  for (const char* name : kBoth) {
    EXPECT_EQ(refusal(name, [](Job&) {}), "");
    EXPECT_NE(refusal(name, [](Job& job) { job.axes.sync.when = Sync::When::every; }).find("once per window only"),
              std::string::npos);
    EXPECT_NE(refusal(name, [](Job& job) { job.axes.precision.reduce = DType::bf16; }).find("in its dtype"),
              std::string::npos);
    EXPECT_NE(refusal(name, [](Job& job) { job.axes.precision.gradients = DType::fp32; }).find("autograd"),
              std::string::npos);
    EXPECT_NE(refusal(name, [](Job& job) { job.axes.shard.params = true; }).find("has no such setting"),
              std::string::npos);
  }
  const auto narrow = [](Job& job) { job.axes.precision.accumulate = job.axes.precision.reduce = DType::bf16; };
  EXPECT_NE(refusal("megatron", narrow).find("with the distributed optimizer only"), std::string::npos);
  EXPECT_EQ(refusal("megatron-dist-opt", narrow), "");
  const auto sgd = [](Job& job) { job.optimizer = OptimizerKind::sgd; };
  EXPECT_EQ(refusal("megatron", sgd), "");
  EXPECT_EQ(refusal("megatron-dist-opt", sgd),
            "optimizer: Only Adam currently supported, due to checkpointing requirements.");
  const auto short_moments = [](Job& job) { job.axes.precision.optimizer = DType::bf16; };
  EXPECT_NE(refusal("megatron", short_moments).find("precision-aware"), std::string::npos);
  EXPECT_EQ(refusal("megatron-dist-opt", short_moments), "");
}

TEST(Megatron, EveryShapeIsSoundInEveryStepAndBothEnginesAgree) {
  for (const char* name : kBoth) {
    for (const std::int64_t microbatches : {1, 2, 4}) {
      for (const std::int64_t ranks : {1, 3, 4}) {
        for (const bool tied : {false, true}) {
          Job job = OracleJob(name, microbatches);
          job.layout.dp = ranks;
          std::get<Decoder>(job.network.shape).tied_embeddings = tied;
          for (const StepKind kind : kSteps) {
            ExpectEnginesAgree(job, kind);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tidemark::strategy_megatron_test
