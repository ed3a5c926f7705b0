// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/predict/communication.h"
#include "sim/program/text.h"
#include "tests/sim/audited_job.h"
#include "tests/sim/gpt_style.h"
#include "tests/sim/highest.h"
#include "tests/sim/oracle_job.h"

// What is not kept because it is computed again, in bytes per layer and microbatch, read off whole jobs as the
// difference of five layers and four. n = 4096 tokens, h = 1024, f = 2816, a = 16 heads, k = 4 for keys, c = h k / a =
// 256, t tensor-parallel ranks. T = 2nh = 8,388,608 is a residual stream in bf16.

namespace tidemark::recompute_test {
namespace {

using Policy = Recompute::Policy;
using TpGather = Buffers::TpGather;
using AttentionKernel = Decoder::AttentionKernel;
using NormKernel = Decoder::NormKernel;

constexpr std::int64_t kN = 4096, kH = 1024, kF = 2816, kA = 16, kC = 256;
constexpr std::int64_t kT = 2 * kN * kH;
constexpr std::int64_t kScores = std::int64_t{16} * 2048 * 2048 * 2;  // a s^2 b

Decoder& DecoderOf(Job& job) { return std::get<Decoder>(job.network.shape); }

Job With(Job job, Policy policy) {
  job.axes.recompute.policy = policy;
  return job;
}

/// Only these parts are done again.
Job Selecting(Job job, std::vector<bool Recompute::*> parts) {
  job.axes.recompute = {.policy = Policy::selective, .attention = false};
  for (bool Recompute::*part : parts) {
    job.axes.recompute.*part = true;
  }
  return job;
}

Job PlainJob() { return OracleJob("ddp-last", 1); }

/// nanotron gathers again into a pooled block, so that a layer keeps the rows this rank has.
Job Divided(std::int64_t tp, bool sp, TpGather gather = TpGather::pooled) {
  Job job = OracleJob("nanotron", 1);
  job.layout.tp = tp;
  job.layout.sp = sp;
  job.axes.buffers.tp_gather = gather;
  return job;
}

/// Activations and gathered inputs that are alive between the forward and the backward pass.
std::int64_t SavedBy(const Job& job) {
  const CategoryBytes live = BookOf(job).after_forward.at(0);
  return (live[Category::activation] + live[Category::tp_gather]).count();
}

std::int64_t SavedPerLayer(Job job) {
  const std::int64_t four = SavedBy(job);
  DecoderOf(job).layers = 5;
  return SavedBy(job) - four;
}

Job GptJob(std::int64_t tp) {
  Job job = tp == 1 ? PlainJob() : Divided(tp, false);
  MakeGptStyle(DecoderOf(job));
  return job;
}

TEST(FullRecompute, KeepsTheLayersInput) {
  EXPECT_EQ(SavedPerLayer(With(PlainJob(), Policy::full)), 8'388'608);  // measured: 8,388,608
  EXPECT_EQ(SavedPerLayer(With(Divided(2, true), Policy::full)), 4'194'304);
  EXPECT_EQ(SavedPerLayer(With(Divided(2, false), Policy::full)), 8'388'608);
  for (const TpGather gather : {TpGather::fresh, TpGather::cached, TpGather::async}) {
    EXPECT_EQ(SavedPerLayer(With(Divided(2, true, gather), Policy::full)), 4'194'304);
  }
  EXPECT_EQ(SavedPerLayer(With(GptJob(1), Policy::full)), 8'388'608);  // its dropout masks are drawn again
}

// The input, q before its rotation, v, attention's output and its row sums, gate, and the down projection's output: 4T
// + 2nc + 4na + 2nf. PyTorch 2.15 keeps just that of such a layer under torchtitan's policy and list
// (torch_recompute.py).
TEST(RecomputePerOp, KeepsAttentionAndEveryOtherProduct) {
  constexpr std::int64_t kKept = 4 * kT + 2 * kN * kC + 4 * kN * kA + 2 * kN * kF;
  static_assert(kKept == 58'982'400);  // measured
  Job job = With(PlainJob(), Policy::per_op);
  job.axes.packing.gate_up = false;
  EXPECT_EQ(SavedPerLayer(job), kKept);
  Job eager = job;
  eager.axes.buffers.fused_glu = eager.axes.buffers.fused_rope = false;
  EXPECT_EQ(SavedPerLayer(eager), kKept);  // what single operations make is done again
}

// A compiler does not do the down projection again, and so does not keep its output, which only the residual sum reads.
TEST(RecomputePerOp, ACompilerKeepsNoOutputThatNobodyNeeds) {
  Job job = With(PlainJob(), Policy::per_op);
  job.axes.packing.gate_up = false;
  job.axes.recompute.needed_only = true;
  EXPECT_EQ(SavedPerLayer(job), 3 * kT + 2 * kN * kC + 4 * kN * kA + 2 * kN * kF);
}

// Reduce-scatters are on the list as well, and the down projection's output is that of all rows, before it is summed.
TEST(RecomputePerOp, KeepsReduceScatters) {
  Job job = With(OracleJob("fsdp2-scatter-each", 1), Policy::per_op);
  job.axes.packing.gate_up = false;
  job.layout.tp = 2;
  job.layout.sp = true;
  EXPECT_EQ(SavedPerLayer(job), 5 * kT / 2 + kT + (2 * kN * kC + 4 * kN * kA + 2 * kN * kF) / 2);
}

// torchtitan's spmd_types scatters through torch.distributed itself, whose operation is not on the list: T/2 each for
// attention and the feed-forward part, which torchtitan b5bcd76c did not keep either.
TEST(RecomputePerOp, MayDoReduceScattersAgain) {
  Job job = With(OracleJob("fsdp2-scatter-each", 1), Policy::per_op);
  job.layout.tp = 2;
  job.layout.sp = true;
  const std::int64_t kept = SavedPerLayer(job);
  job.axes.recompute.collectives = true;
  EXPECT_EQ(SavedPerLayer(job), kept - 2 * kT / 2);
}

// A packed product is one: gate and up are kept together, and the down projection is the sixth product, not the
// seventh.
TEST(RecomputePerOp, CountsAPackedProductOnce) {
  EXPECT_EQ(SavedPerLayer(With(PlainJob(), Policy::per_op)), 3 * kT + 2 * kN * kC + 4 * kN * kA + 4 * kN * kF);
}

// Without sequence parallelism the down projection's output is reduced in place, and done again.
TEST(RecomputePerOp, KeepsNothingThatIsReducedInPlace) {
  Job job = With(OracleJob("fsdp2-scatter-each", 1), Policy::per_op);
  job.axes.packing.gate_up = false;
  job.layout.tp = 2;
  job.layout.sp = false;
  EXPECT_EQ(SavedPerLayer(job), kT + (2 * kT + 2 * kN * kC + 4 * kN * kA + 2 * kN * kF) / 2);
}

// Biases of row-parallel products are added in place behind the reduce-scatter, which is then done again.
TEST(RecomputePerOp, WorksWithBiasesBehindReduceScatters) {
  Job job = OracleJob("fsdp2-scatter-each", 1);
  DecoderOf(job).linear_bias = true;
  job.layout.tp = 2;
  job.layout.sp = true;
  const std::int64_t full = SavedPerLayer(With(job, Policy::full));
  const std::int64_t per_op = SavedPerLayer(With(job, Policy::per_op));
  EXPECT_LT(full, per_op);
  EXPECT_LT(per_op, SavedPerLayer(With(job, Policy::none)));
}

// A product in two parts, of own rows while the others are gathered, is one product.
TEST(RecomputePerOp, CountsAProductInTwoPartsOnce) {
  EXPECT_EQ(SavedPerLayer(With(Divided(2, true, TpGather::async), Policy::per_op)),
            SavedPerLayer(With(Divided(2, true, TpGather::pooled), Policy::per_op)));
}

// Products with a bias and attention in single operations are other operations, which are not on the list.
TEST(RecomputePerOp, WhatIsNotOnTheListIsDoneAgain) { EXPECT_EQ(SavedPerLayer(With(GptJob(1), Policy::per_op)), kT); }

/// The highest sum of activations of a job's first role.
std::int64_t HighestActivations(const Job& job) {
  return HighestBytes(Sound(job), job.machine, Category::activation).front();
}

// The last layer's backward pass, tensor by tensor: L layer inputs, the gradient of the output T, and all that a layer
// keeps but its input, n (10h + 4c + 6f + 8 + 4a) = 115,638,272. The highest instant is the kernel behind the down
// projection: its input 2nf is gone, its input gradient 2nf and the gradient of gate and up 4nf have come.
TEST(FullRecompute, PeaksAtOneLayersWholeSet) {
  const std::int64_t set = kN * (10 * kH + 4 * kC + 6 * kF + 8 + 4 * kA);
  ASSERT_EQ(set, 115'638'272);
  for (const std::int64_t layers : {1, 4, 9}) {
    Job job = With(PlainJob(), Policy::full);
    DecoderOf(job).layers = layers;
    EXPECT_EQ(HighestActivations(job), layers * kT + kT + set + 4 * kN * kF) << layers;
  }
  // Nothing done again: L whole sets and the same transients.
  EXPECT_EQ(HighestActivations(PlainJob()), 4 * (kT + set) + kT + 4 * kN * kF);
}

struct Collectives {
  std::int64_t gathers = 0, scatters = 0, reductions = 0;
  friend bool operator==(const Collectives&, const Collectives&) = default;
};

Collectives TpCollectives(const Job& job) {
  Collectives all;
  for (const CommunicationRow& row : CountCommunication(Sound(job).roles.front())) {
    if (row.group == "tp") {
      all.gathers += row.kind == "all_gather" ? row.count : 0;
      all.scatters += row.kind == "reduce_scatter" ? row.count : 0;
      all.reductions += row.kind == "all_reduce" ? row.count : 0;
    }
  }
  return all;
}

Collectives TpCollectivesPerLayer(Job job) {
  const Collectives four = TpCollectives(job);
  DecoderOf(job).layers = 5;
  const Collectives five = TpCollectives(job);
  return {five.gathers - four.gathers, five.scatters - four.scatters, five.reductions - four.reductions};
}

// Forward: gathers in front of both column linears, scatters behind both row linears. Backward: gathers of dY, scatters
// of dX, and where the input was not kept, its gather again. The forward pass done again has its own, and the linear
// layers gather again as they do without it.
TEST(FullRecompute, RepeatsTheLayersCollectives) {
  for (const TpGather gather : {TpGather::pooled, TpGather::async}) {
    EXPECT_EQ(TpCollectivesPerLayer(Divided(2, true, gather)), (Collectives{6, 4, 0}));
    EXPECT_EQ(TpCollectivesPerLayer(With(Divided(2, true, gather), Policy::full)), (Collectives{8, 6, 0}));
  }
  EXPECT_EQ(TpCollectivesPerLayer(Divided(2, true, TpGather::cached)), (Collectives{4, 4, 0}));
  EXPECT_EQ(TpCollectivesPerLayer(With(Divided(2, true, TpGather::cached), Policy::full)), (Collectives{6, 6, 0}));
  EXPECT_EQ(TpCollectivesPerLayer(Divided(2, false)), (Collectives{0, 0, 4}));
  EXPECT_EQ(TpCollectivesPerLayer(With(Divided(2, false), Policy::full)), (Collectives{0, 0, 6}));
}

// 34 sbh are left of sbh (34 + 5as/h), and the norms' statistics 16n. With t = 2 and whole rows: sbh (10 + 24/t), the
// statistics undivided. 5 a s^2 b = 671,088,640.
TEST(SelectiveRecompute, DropsWhatAttentionKeepsOfItsScores) {
  const Job job = GptJob(1);
  EXPECT_EQ(SavedPerLayer(job) - SavedPerLayer(With(job, Policy::selective)), 671'088'640);
  EXPECT_EQ(SavedPerLayer(With(job, Policy::selective)), 142'606'336 + 16 * kN);
  const Job divided = GptJob(2);
  EXPECT_EQ(SavedPerLayer(divided) - SavedPerLayer(With(divided, Policy::selective)), 671'088'640 / 2);
  EXPECT_EQ(SavedPerLayer(With(divided, Policy::selective)), kN * kH * (10 + 24 / 2) + 16 * kN);
}

// 2, 5, 6 and 7 a s^2 b, by how the softmax is written.
TEST(SelectiveRecompute, DropsScoresHoweverTheSoftmaxIsWritten) {
  const auto dropped = [](AttentionKernel kernel, double dropout, std::int64_t kv_heads) {
    Job job = PlainJob();
    DecoderOf(job).attention_kernel = kernel;
    DecoderOf(job).attention_dropout = dropout;
    DecoderOf(job).kv_heads = kv_heads;
    return SavedPerLayer(job) - SavedPerLayer(With(job, Policy::selective));
  };
  EXPECT_EQ(dropped(AttentionKernel::eager, 0, 16), 2 * kScores);
  EXPECT_EQ(dropped(AttentionKernel::eager, 0.1, 16), 671'088'640);
  EXPECT_EQ(dropped(AttentionKernel::eager_fp32_softmax, 0, 16), 6 * kScores);
  EXPECT_EQ(dropped(AttentionKernel::eager_fp32_softmax, 0.1, 16), 7 * kScores);
  // Keys and values are repeated for each query head again as well: 4nc are kept instead of 4nh.
  EXPECT_EQ(dropped(AttentionKernel::eager, 0, 4), 2 * kScores + 4 * kN * (kH - kC));
}

// A flash kernel keeps no scores, only lse 4na; its output stays, the input of the next linear layer.
TEST(SelectiveRecompute, GainsNothingOfAFlashKernel) {
  EXPECT_EQ(SavedPerLayer(PlainJob()) - SavedPerLayer(With(PlainJob(), Policy::selective)), 4 * kN * kA);
}

// Both norms' outputs are what linear layers keep: 2nh/t each. The norms run without a graph the first time, so their
// rstd, 4n/t each, is not kept either (Megatron-LM's CheckpointWithoutOutput calls them under no_grad).
TEST(SelectiveRecompute, DropsOutputsOfNorms) {
  const auto dropped = [](const Job& job) {
    return SavedPerLayer(job) - SavedPerLayer(Selecting(job, {&Recompute::norm}));
  };
  EXPECT_EQ(dropped(PlainJob()), 2 * (kT + 4 * kN));
  EXPECT_EQ(dropped(Divided(2, true)), 2 * (kT + 4 * kN) / 2);
  EXPECT_EQ(dropped(Divided(2, true, TpGather::async)), 2 * (kT + 4 * kN) / 2);
  EXPECT_EQ(dropped(Divided(2, false)), 2 * (kT + 4 * kN));
  EXPECT_EQ(dropped(Divided(2, true, TpGather::cached)), 2 * 4 * kN / 2);  // gathered inputs are kept
  Job wide = PlainJob();  // x in fp32 4nh and rstd, x scaled 2nh, the output 2nh
  DecoderOf(wide).norm_kernel = NormKernel::eager;
  EXPECT_EQ(dropped(wide), 2 * (4 * kT + 4 * kN) - 2 * kT);  // the layer's input 2nh is kept again, once a norm
}

// 2nf/t, and the activated gate 2nf/t where nothing fuses it.
TEST(SelectiveRecompute, DropsTheDownProjectionsInput) {
  const auto dropped = [](const Job& job) {
    return SavedPerLayer(job) - SavedPerLayer(Selecting(job, {&Recompute::activation}));
  };
  EXPECT_EQ(dropped(PlainJob()), 2 * kN * kF);
  EXPECT_EQ(dropped(Divided(2, true)), kN * kF);
  Job eager = PlainJob();
  eager.axes.buffers.fused_glu = false;
  EXPECT_EQ(dropped(eager), 4 * kN * kF);
  EXPECT_EQ(dropped(GptJob(1)), 2 * kN * 4 * kH);
}

// 4nf of gate and up and 2nf of the down projection's input; the norm's output stays, with `norm` it goes as well.
TEST(SelectiveRecompute, DropsTheFeedForwardsInsides) {
  const Job job = PlainJob();
  const std::int64_t all = SavedPerLayer(job);
  EXPECT_EQ(all - SavedPerLayer(Selecting(job, {&Recompute::feed_forward})), 6 * kN * kF);
  EXPECT_EQ(all - SavedPerLayer(Selecting(job, {&Recompute::feed_forward, &Recompute::norm})),
            6 * kN * kF + 2 * (kT + 4 * kN));
  const Job both = Selecting(job, {&Recompute::feed_forward, &Recompute::activation});
  EXPECT_EQ(all - SavedPerLayer(both), 6 * kN * kF);
  EXPECT_EQ(TpCollectivesPerLayer(Selecting(Divided(2, true), {&Recompute::feed_forward})), (Collectives{7, 5, 0}));
}

std::int64_t SavedWithLayers(Job job, std::int64_t layers) {
  DecoderOf(job).layers = layers;
  return SavedBy(job);
}

// torchtitan counts from 1: with 2, of layers 0 to 4 it checkpoints 1 and 3. A layer keeps 124,026,880 or its input.
TEST(EveryNthLayer, IsDoneAgain) {
  Job job = With(PlainJob(), Policy::every_n);
  const std::int64_t whole = 124'026'880;
  const std::int64_t kept[] = {whole, kT, whole, kT, whole, kT};
  for (std::int64_t layers = 1; layers < 6; ++layers) {
    EXPECT_EQ(SavedWithLayers(job, layers + 1) - SavedWithLayers(job, layers), kept[layers]) << layers;
  }
  job.axes.recompute.every = 3;
  EXPECT_EQ(SavedWithLayers(job, 6) - SavedWithLayers(job, 3), 2 * whole + kT);
  EXPECT_EQ(SavedWithLayers(job, 2) - SavedWithLayers(job, 1), whole);
  job.axes.recompute.every = 1;
  EXPECT_EQ(SavedPerLayer(job), kT);
}

// In a pipeline each rank counts its own layers, over all its model chunks: of ranks with 3 layers each, both
// checkpoint their second one; with two chunks of 1 layer, it is the second chunk's.
TEST(EveryNthLayer, IsCountedOnItsRank) {
  Job job = With(OracleJob("nanotron", 4), Policy::every_n);
  DecoderOf(job).layers = 6;
  job.layout.pp = 2;
  const auto repeated = [](const Program& program) {
    std::vector<std::string> layers;
    for (const Node& node : Unroll(program).nodes) {
      const auto* compute = std::get_if<Compute>(&node);
      if (compute != nullptr && compute->work == Work::recompute &&
          program.names[compute->name.index].find("attention.forward") != std::string::npos) {
        layers.push_back(program.names[compute->name.index]);
      }
    }
    return layers;
  };
  for (const Program& program : Sound(job).roles) {
    EXPECT_EQ(repeated(program).size(), 4U);  // one layer, four microbatches
  }
  DecoderOf(job).layers = 4;
  job.layout.vpp = 2;
  job.schedule = Schedule::interleaved;
  for (const Program& program : Sound(job).roles) {
    EXPECT_EQ(repeated(program).size(), 4U);
  }
}

// Matrix products and attention of a layer's forward pass, of which a causal mask leaves half of the pairs: 2n (2h^2 +
// 2hc + 3hf) + 2 s^2 b h.
TEST(Recompute, CountsOneForwardPassOfItsLayersMore) {
  const ProgramFlops kept = CountFlops(Sound(PlainJob()).roles.front());
  const auto repeated = [&](const Job& job) {
    const ProgramFlops flops = CountFlops(Sound(job).roles.front());
    EXPECT_EQ(flops.model, kept.model);
    return flops.hardware - kept.hardware;
  };
  const double layer = 2.0 * kN * (2.0 * kH * kH + 2.0 * kH * kC + 3.0 * kH * kF) + 2.0 * 2048 * 2048 * 2 * kH;
  EXPECT_EQ(repeated(With(PlainJob(), Policy::full)), 4 * layer);
  EXPECT_EQ(repeated(With(PlainJob(), Policy::every_n)), 2 * layer);
  EXPECT_EQ(repeated(With(PlainJob(), Policy::selective)), 4 * 2.0 * 2048 * 2048 * 2 * kH);
  EXPECT_EQ(repeated(Selecting(PlainJob(), {&Recompute::norm, &Recompute::activation})), 0);  // no products
}

TEST(Recompute, IsBookedAsSuch) {
  const auto time_of = [](Job job) {
    job.machine.overlap_slowdown = 1;  // of more kernels beside as many collectives each suffers less
    const StepProgram step = Sound(job);
    return Simulate(step, PriceAll(step, job.machine)).time;
  };
  const StepTime kept = time_of(PlainJob()), again = time_of(With(PlainJob(), Policy::full));
  EXPECT_EQ(kept.recompute, Nanos(0));
  EXPECT_GT(again.recompute, Nanos(0));
  EXPECT_EQ(again.compute, kept.compute);
}

}  // namespace
}  // namespace tidemark::recompute_test
