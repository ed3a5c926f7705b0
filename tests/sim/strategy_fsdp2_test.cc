// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/oracle_job.h"
#include "tests/sim/sound_program.h"

// Expected values are the worked numbers of FSDP2's event order, made independently by an allocation-by-allocation
// script from the order of events in torch's _fsdp_param_group.py: 110,633,984 parameters, bf16 for compute, fp32
// shards and reduction, Adam, N = 4, M = 4 where not said otherwise.

namespace tidemark::strategy_fsdp2_test {
namespace {

struct Traffic {
  std::int64_t gathered = 0, scattered = 0, wire = 0;
};

Traffic TrafficOf(const std::string& strategy, std::int64_t microbatches) {
  const Job job = OracleJob(strategy, microbatches);
  const Result<StepProgram> step = Lower(job, StepKind::steady);
  EXPECT_TRUE(step.ok());
  Traffic traffic;
  for (const CommunicationRow& row : CountCommunication(step->roles.front())) {
    EXPECT_EQ(row.group, "dp");
    (row.kind == "all_gather" ? traffic.gathered : traffic.scattered) += row.payload.count();
    traffic.wire += row.wire.count();
  }
  return traffic;
}

TEST(Fsdp2, ScatteringOneMicrobatchPeaksAtTheEmbeddingUnit) {
  EXPECT_EQ(BookOf(OracleJob("fsdp2-scatter-each", 1)).highest_system.count(), 606'375'936);
}

TEST(Fsdp2, ScatteringEachMicrobatchPeaksInTheSecondMicrobatchsHead) {
  EXPECT_EQ(BookOf(OracleJob("fsdp2-scatter-each", 4)).highest_system.count(), 661'698'560);
}

TEST(Fsdp2, DeferringKeepsUnshardedGradients) {
  EXPECT_EQ(BookOf(OracleJob("fsdp2-defer", 4)).highest_system.count(), 928'062'464);
}

TEST(Fsdp2, AWindowOfOneMicrobatchHasNothingToDefer) {
  EXPECT_EQ(BookOf(OracleJob("fsdp2-defer", 1)).highest_system.count(), 606'375'936);
}

TEST(Fsdp2, EveryWindowEndsWithShardsMomentsAndShardedGradients) {
  for (const char* strategy : {"fsdp2-scatter-each", "fsdp2-defer"}) {
    const Ledger ledger = BookOf(OracleJob(strategy, 4));
    EXPECT_EQ(SystemBytes(ledger.at_window_end).count(), 442'535'936) << strategy;
    EXPECT_EQ(ledger.at_window_end[Category::parameter].count(), 110'633'984) << strategy;
    EXPECT_EQ(ledger.at_window_end[Category::optimizer].count(), 221'267'968) << strategy;
  }
}

TEST(Fsdp2, BetweenMicrobatchesGradientsAreShardedOrWhole) {
  const CategoryBytes scattered = BookOf(OracleJob("fsdp2-scatter-each", 4)).between_microbatches.at(2);
  EXPECT_EQ(scattered[Category::gradient].count(), 110'633'984);
  EXPECT_EQ(SystemBytes(scattered).count(), 442'535'936);
  const CategoryBytes deferred = BookOf(OracleJob("fsdp2-defer", 4)).between_microbatches.at(2);
  EXPECT_EQ(deferred[Category::accumulator].count(), 442'535'936);
  EXPECT_EQ(SystemBytes(deferred).count(), 774'437'888);
}

TEST(Fsdp2, KeepingParametersAfterBackwardHoldsThemBetweenMicrobatches) {
  const CategoryBytes between = BookOf(OracleJob("fsdp2-keep-after-backward", 4)).between_microbatches.at(2);
  // Shards in fp32 and all parameters in bf16: 4 P / N + 2 P.
  EXPECT_EQ(between[Category::parameter].count(), 110'633'984 + 221'267'968);
}

TEST(Fsdp2, PayloadsAndWireBytesOfAllFourStrategies) {
  const Traffic each = TrafficOf("fsdp2-scatter-each", 4);
  EXPECT_EQ(each.gathered, 1'507'991'552);
  EXPECT_EQ(each.scattered, 1'770'143'744);
  EXPECT_EQ(each.wire, 2'458'601'472);
  const Traffic defer = TrafficOf("fsdp2-defer", 4);
  EXPECT_EQ(defer.gathered, 1'507'991'552);
  EXPECT_EQ(defer.scattered, 442'535'936);
  EXPECT_EQ(defer.wire, 1'462'895'616);
  const Traffic keep = TrafficOf("fsdp2-keep-after-backward", 4);
  EXPECT_EQ(keep.gathered, 844'187'648);
  EXPECT_EQ(keep.wire, 965'042'688);
  const Traffic keep_all = TrafficOf("fsdp2-keep-all", 4);
  EXPECT_EQ(keep_all.gathered, 221'267'968);
  EXPECT_EQ(keep_all.wire, 497'852'928);
}

TEST(Fsdp2, TheFirstStepHasNoMomentsUntilItsUpdate) {
  const Job job = OracleJob("fsdp2-scatter-each", 4);
  const Result<StepProgram> step = Lower(job, StepKind::first);
  ASSERT_TRUE(step.ok());
  const Ledger ledger = Audit(*step, job.machine);
  EXPECT_EQ(ledger.at_window_end[Category::optimizer].count(), 0);
  // Every gradient is still there when the last moment appears: shards 4 P / N, gradients 4 P / N, moments 8 P / N.
  EXPECT_EQ(ledger.highest_in_optimizer.count(), 442'535'936);
  EXPECT_EQ(ledger.after_optimizer[Category::optimizer].count(), 221'267'968);
}

TEST(Fsdp2, EverythingGoesBackToTheStateOfTheStepsStart) {
  for (const char* strategy : {"fsdp2-scatter-each", "fsdp2-defer", "fsdp2-keep-after-backward", "fsdp2-keep-all"}) {
    const Ledger ledger = BookOf(OracleJob(strategy, 3));
    EXPECT_EQ(ledger.live, ledger.between_microbatches.at(0)) << strategy;
  }
}

TEST(Fsdp2, RowsThatDoNotDivideArePaddedToTheGroup) {
  Job job = OracleJob("fsdp2-scatter-each", 1);
  job.layout.dp = 3;
  const Result<StepProgram> step = Lower(job, StepKind::steady);
  ASSERT_TRUE(step.ok());
  std::int64_t shards = 0, unsharded = 0;
  for (const Buffer& buffer : step->roles.front().buffers) {
    if (buffer.category == Category::parameter) {
      (buffer.resident ? shards : unsharded) += buffer.elements * buffer.count();
    }
  }
  // Rows of dimension 0 padded to multiples of 3, times columns, over 3 ranks: the vocabulary 32000 -> 32001 (embedding
  // and head), norms and wq, wo 1024 -> 1026, wk and wv 256 -> 258, gate-up 5632 -> 5634, down 1024 -> 1026.
  const std::int64_t ends = 2 * 32001 * 1024 + 1026;
  const std::int64_t layer = 2 * 1026 + 2 * 1026 * 1024 + 2 * 258 * 1024 + 5634 * 1024 + 1026 * 2816;
  EXPECT_EQ(shards, (ends + 4 * layer) / 3);
  EXPECT_EQ(unsharded, ends + 4 * layer) << "FSDPParam.init_all_gather_outputs";
}

TEST(Fsdp2, ATiedHeadJoinsTheEmbeddingsUnitAndIsStoredOnce) {
  Job job = OracleJob("fsdp2-scatter-each", 2);
  std::get<Decoder>(job.network.shape).tied_embeddings = true;
  const Result<StepProgram> step = Lower(job, StepKind::steady);
  ASSERT_TRUE(step.ok());
  EXPECT_TRUE(Verify(*step).empty());
  // 110,633,984 - 32,768,000 parameters in fp32 over 4 ranks.
  EXPECT_EQ(Audit(*step, job.machine).at_window_end[Category::parameter].count(), 110'633'984 - 32'768'000);
}

TEST(Fsdp2, NarrowingForTheWireTakesOnePackedCopyMore) {
  Job job = OracleJob("fsdp2-scatter-each", 1);
  Precision& precision = job.axes.precision;
  precision.params = precision.gradients = DType::fp32;
  const Result<StepProgram> plain = Lower(job, StepKind::steady);
  precision.reduce = precision.accumulate = DType::bf16;
  const Result<StepProgram> narrow = Lower(job, StepKind::steady);
  ASSERT_TRUE(plain.ok() && narrow.ok());
  EXPECT_TRUE(Verify(*narrow).empty());
  // Both peak at the embedding unit, u0 = 32,768,000 elements, beside the same shards. Narrowing: gradients and packed
  // copy in fp32, input in bf16, 10 u0. Plain: gathered and unpacked parameters in fp32, 8 u0, while the scatter input
  // of the layer before, 4 u1 with u1 = 11,274,240, is still held.
  EXPECT_EQ((Audit(*narrow, job.machine).highest_system - Audit(*plain, job.machine).highest_system).count(),
            2 * 32'768'000 - 4 * 11'274'240);
}

// The order in which a middle layer's unit is gathered, used and scattered, step by step as _fsdp_param_group.py has
// it: the gather buffer of the unit before lives until the next one exists; in backward the unit below is gathered
// before this one's gradients are made; one reduce-scatter is under way at most.
std::vector<std::string> EventsOf(const Program& program, Phase phase, const std::vector<std::string>& wanted) {
  std::vector<std::string> events;
  bool inside = false;
  for (const Node& node : program.nodes) {
    const auto* begin = std::get_if<Begin>(&node);
    inside = begin != nullptr ? begin->phase == phase : inside && !std::holds_alternative<End>(node);
    const std::string line = inside ? Print(program, node) : "";
    for (const std::string& want : wanted) {
      if (line == want) {
        events.push_back(want);
      }
    }
  }
  return events;
}

// fully_shard keeps a storage for each parameter (FSDPParam), and one buffer for a unit's gather.
TEST(Fsdp2, EachParameterHasAShardAndAnUnshardedTensorOfItsOwn) {
  const Program program = Sound(OracleJob("fsdp2-scatter-each", 1)).roles.front();
  std::map<std::string, std::int64_t> elements;
  for (const Buffer& buffer : program.buffers) {
    elements[buffer.name] = buffer.elements;
  }
  // h 1024, k 4 of a 16 heads, f 2816, N 4.
  EXPECT_EQ(elements.at("unsharded layer.wk"), 256 * 1024);
  EXPECT_EQ(elements.at("shard of layer.wk"), 256 * 1024 / 4);
  EXPECT_EQ(elements.at("unsharded layer.norm1"), 1024);
  EXPECT_EQ(elements.at("shard of layer.down"), 2816 * 1024 / 4);
  EXPECT_EQ(elements.at("gathered layer"), 11'274'240);
  EXPECT_FALSE(elements.contains("unsharded layer"));
}

TEST(Fsdp2, AMiddleLayersEventsComeInTheirOrder) {
  const Result<StepProgram> step = Lower(OracleJob("fsdp2-scatter-each", 1), StepKind::steady);
  ASSERT_TRUE(step.ok());
  const Program program = Unroll(step->roles.front());
  const std::vector<std::string> forward = {
      R"(alloc "cast shard of layer"[1])", R"(alloc "gathered layer"[1])",        R"(free "cast shard of layer"[1])",
      R"(free "gathered layer"[0])",       R"(alloc "unsharded layer.norm1"[1])", R"(free "unsharded layer.norm1"[1])"};
  EXPECT_EQ(EventsOf(program, Phase::forward, forward), forward);
  const std::vector<std::string> backward = {
      R"(alloc "gathered layer"[1])",          // ahead, while layer 2 is at work
      R"(free "unsharded layer.norm1"[2])",    // layer 2 reshards
      R"(alloc "scatter input of layer"[2])",  // and scatters
      R"(alloc "unsharded layer.norm1"[1])",    R"(free "gathered layer"[1])",
      R"(alloc "gathered layer"[0])",  // the unit below, before this one's gradients
      R"(alloc "gradient of layer.wo"[1])",     R"(free "unsharded layer.norm1"[1])",
      R"(free "scatter input of layer"[2])",  // waited for only now
      R"(alloc "scatter input of layer"[1])",   R"(free "gradient of layer.wo"[1])",
      R"(alloc "sharded gradient of layer"[1])"};
  EXPECT_EQ(EventsOf(program, Phase::backward, backward), backward);
}

// The root's last unit returns logits, so that the loss's backward kernels run before its pre-backward hook prefetches:
// so PyTorch was seen to allocate (torch 2.11 and 2.15, 4 ranks), whose peak is lower by this gather than with it
// before the loss.
TEST(Fsdp2, TheFirstPrefetchOfABackwardPassComesBehindTheLoss) {
  for (const char* strategy : {"fsdp2-scatter-each", "fsdp2-defer"}) {
    const std::string text = Print(Sound(OracleJob(strategy, 1)).roles.front());
    const std::size_t backward = text.find("begin backward");
    const std::size_t loss = text.find("compute head.logits.downcast", backward);
    const std::size_t prefetch = text.find("alloc \"gathered layer\"", backward);
    const std::size_t product = text.find("compute head.lm_head.weight_gradient", backward);
    ASSERT_NE(loss, std::string::npos);
    EXPECT_LT(loss, prefetch) << strategy;
    EXPECT_LT(prefetch, product) << strategy;
  }
}

TEST(Fsdp2, TheProgramDoesNotGrowWithLayersOrMicrobatches) {
  const auto nodes = [](std::int64_t layers, std::int64_t microbatches) {
    Job job = OracleJob("fsdp2-defer", microbatches);
    std::get<Decoder>(job.network.shape).layers = layers;
    const Result<StepProgram> step = Lower(job, StepKind::steady);
    EXPECT_TRUE(step.ok());
    return step->roles.front().nodes.size();
  };
  EXPECT_EQ(nodes(126, 256), nodes(8, 4));
}

// foreach_reduce's N = 1 branch: reduce_output.copy_(reduce_scatter_input), also with a divide factor of 1
// (PyTorch 2.15; releases before divided into a copy of its own).
TEST(Fsdp2, OneRankCopiesOnceWhateverTheDivideFactorIs) {
  Job job = OracleJob("fsdp2-scatter-each", 2);
  job.layout.dp = 1;
  for (const LossScale scale : {LossScale::microbatches, LossScale::global_tokens}) {
    job.axes.loss_scale = scale;
    const StepProgram step = Sound(job);
    const Program& program = step.roles.front();
    EXPECT_TRUE(CountCommunication(program).empty());
    std::int64_t copies = 0, outputs = 0;
    for (const Node& node : Unroll(program).nodes) {
      const auto* kernel = std::get_if<Compute>(&node);
      const auto* alloc = std::get_if<Alloc>(&node);
      copies += kernel != nullptr && program.names[kernel->name.index] == "copy gradients" ? 1 : 0;
      outputs += alloc != nullptr && program.streams[program.buffers[alloc->buffer.buffer.index].stream.index].name ==
                                         "reduce_scatter"
                     ? 1
                     : 0;
    }
    EXPECT_EQ(copies, 2 * 6);   // six units, two microbatches
    EXPECT_EQ(outputs, 2 * 6);  // and nothing else beside them
  }
}

// Weights that a kernel reads are as wide as its activations, whatever the number of ranks; two parameters' casts are
// there at once, each 2 bytes an element of the first's and the second's.
TEST(Fsdp2, OneRankComputesInTheDtypeOfItsParameters) {
  Job job = OracleJob("fsdp2-scatter-each", 2);
  job.layout.dp = 1;
  const StepProgram step = Sound(job);
  const Program& program = step.roles.front();
  bool found = false;
  for (const Buffer& buffer : program.buffers) {
    if (buffer.name == "unsharded layer.wq") {
      EXPECT_EQ(buffer.dtype, DType::bf16);
      found = true;
    }
  }
  EXPECT_TRUE(found);
  const std::string text = Print(Unroll(program));
  const std::size_t second = text.find("alloc \"cast layer.wk\"[0]"), first = text.find("free \"cast layer.wq\"[0]");
  ASSERT_NE(first, std::string::npos);
  EXPECT_LT(second, first);
  EXPECT_LT(first, text.find("compute \"copy parameters\"", first));
}

TEST(Fsdp2, LaterMicrobatchesCastTheirShardBesideTheGradientTheyAreAddedTo) {
  // bf16 shards, fp32 reduction: a second microbatch's output (fp32) is cast to bf16 before it is added.
  Job job = OracleJob("fsdp2-scatter-each", 2);
  job.axes.precision.master.reset();
  const std::string text = Print(Unroll(Sound(job).roles.front()));
  EXPECT_NE(text.find("alloc \"cast scatter output of layer\""), std::string::npos);
  // With fp32 shards nothing is cast.
  job.axes.precision.master = DType::fp32;
  EXPECT_EQ(Print(Unroll(Sound(job).roles.front())).find("alloc \"cast scatter output"), std::string::npos);
}

TEST(Fsdp2, AnFp16ReductionIsDividedOnBothSides) {
  Job job = OracleJob("fsdp2-scatter-each", 1);
  Precision& precision = job.axes.precision;
  precision.params = precision.gradients = precision.reduce = precision.accumulate = DType::fp16;
  // N = 8: 1, 2, 4 (16 > 8): divided by 4 before and 2 behind. N = 3: 2 before (it divides 3 no longer), 3/2 behind.
  for (const auto& [ranks, before, behind] :
       {std::tuple{8, Rational(1, 4), Rational(1, 2)}, std::tuple{3, Rational(1, 2), Rational(2, 3)},
        std::tuple{4, Rational(1, 2), Rational(1, 2)}}) {
    job.layout.dp = ranks;
    std::vector<Rational> factors;
    for (const Node& node : Unroll(Sound(job).roles.front()).nodes) {
      if (const auto* scale = std::get_if<Scale>(&node)) {
        factors.push_back(scale->factor);
      }
    }
    ASSERT_EQ(factors.size(), 12U);
    EXPECT_EQ(factors[0], before);
    EXPECT_EQ(factors[1], behind);
  }
}

TEST(Fsdp2, GradientsOfTheSameDtypeAreAddedUpAsTheyArrive) {
  Job job = OracleJob("fsdp2-defer", 3);
  Precision& precision = job.axes.precision;
  precision.reduce = precision.accumulate = DType::bf16;
  const Program program = Sound(job).roles.front();
  // autograd adds to .grad: of a middle layer's new gradients only one is there at a time.
  const std::vector<std::string> order = {R"(alloc "gradient of layer.wo"[1])", R"(free "gradient of layer.wo"[1])",
                                          R"(alloc "gradient of layer.wq"[1])"};
  Program unrolled = Unroll(program);
  std::vector<std::string> events = EventsOf(unrolled, Phase::backward, order);
  ASSERT_GE(events.size(), 3U);
  events.resize(3);
  EXPECT_EQ(events, order);
}

TEST(Fsdp2, WhatItWouldNotLookAtIsRefusedWithItsKey) {
  const auto refused = [](auto change) {
    Job job = OracleJob("fsdp2-defer", 2);
    change(job.axes);
    const Result<StepProgram> step = Lower(job, StepKind::steady);
    return step.ok() ? std::string() : step.error().where;
  };
  EXPECT_EQ(refused([](Axes& axes) { axes.sync.collective = CollectiveKind::all_reduce; }), "sync.collective");
  EXPECT_EQ(refused([](Axes& axes) { axes.sync.overlap = false; }), "sync.overlap");
  EXPECT_EQ(refused([](Axes& axes) { axes.sync.bucket_bytes = Bytes(1); }), "sync.bucket_bytes");
  EXPECT_EQ(refused([](Axes& axes) { axes.precision.accumulate = DType::bf16; }), "precision.accumulate");
  EXPECT_EQ(refused([](Axes& axes) { axes.buffers.gradient_as_bucket_view = true; }),
            "buffers.gradient_as_bucket_view");
  EXPECT_EQ(refused([](Axes& axes) { axes.shard.params = false; }), "shard.params");
}

TEST(Fsdp2, WhatItDoesNotModelIsRefused) {
  Job job = OracleJob("fsdp2-defer", 4);
  job.layout.pp = 2;
  EXPECT_FALSE(Lower(job, StepKind::steady).ok());
}

}  // namespace
}  // namespace tidemark::strategy_fsdp2_test
