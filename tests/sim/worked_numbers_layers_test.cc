// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <ostream>

#include "tests/sim/audited_job.h"
#include "tests/sim/gpt_style.h"
#include "tests/sim/oracle_job.h"

// Bytes that one layer keeps from its forward to its backward pass, per microbatch, read off whole jobs: a network of
// five layers against one of four. n = 4096 tokens (b = 2 sequences of s = 2048), h = 1024, f = 2816, a = 16 heads of
// which k = 4 for keys, c = h k / a = 256; one tensor-parallel rank. "Measured" are sums over unique storages that
// a running PyTorch saved for its backward pass.

namespace tidemark::worked_numbers_layers_test {
namespace {

using AttentionKernel = Decoder::AttentionKernel;
using NormKernel = Decoder::NormKernel;

constexpr std::int64_t kN = 4096, kH = 1024;
constexpr std::int64_t kScores = std::int64_t{16} * 2048 * 2048 * 2;  // a s^2 b

Job PlainJob() { return OracleJob("ddp-last", 1); }

Decoder& DecoderOf(Job& job) { return std::get<Decoder>(job.network.shape); }

/// Activations that are alive between the forward and the backward pass.
std::int64_t SavedBy(const Job& job) { return BookOf(job).after_forward.at(0)[Category::activation].count(); }

std::int64_t SavedPerLayer(Job job) {
  const std::int64_t four = SavedBy(job);
  DecoderOf(job).layers = 5;
  return SavedBy(job) - four;
}

Job Tensors(std::int64_t tp, bool sp, Buffers::TpGather gather, bool fused_glu) {
  Job job = OracleJob("nanotron", 1);
  job.layout.tp = tp;
  job.layout.sp = sp;
  job.axes.buffers.tp_gather = gather;
  job.axes.buffers.fused_glu = fused_glu;
  return job;
}

TEST(SavedPerLayer, IsTheWorkedSumUnderTensorParallelism) {
  using TpGather = Buffers::TpGather;
  EXPECT_EQ(SavedPerLayer(Tensors(2, true, TpGather::pooled, true)), 62'013'440);
  EXPECT_EQ(SavedPerLayer(Tensors(2, true, TpGather::pooled, false)), 73'547'776);
  EXPECT_EQ(SavedPerLayer(Tensors(2, true, TpGather::async, true)), 62'013'440);
  // What is gathered and kept counts as tp_gather: 2 x 8,388,608 beside what is left in activations.
  EXPECT_EQ(SavedPerLayer(Tensors(2, true, TpGather::cached, true)) + 2 * 8'388'608, 70'402'048);
  EXPECT_EQ(SavedPerLayer(Tensors(2, true, TpGather::cached, false)) + 2 * 8'388'608, 81'936'384);
  EXPECT_EQ(SavedPerLayer(Tensors(2, false, TpGather::cached, true)), 78'807'040);
  EXPECT_EQ(SavedPerLayer(Tensors(2, false, TpGather::cached, false)), 90'341'376);
}

// The planner of Megatron-LM counts sbh (18 + 4 f/h) / t = 121,634,816 / t. The table of tensors has 2,392,064 bytes
// more here, n (12h + 4c + 6f + 8 + 4a) - n (18h + 4f) = n (2f - 6h + 4c + 8 + 4a): it counts 1.9 % too few, not too
// many, as soon as 2f + 4c > 6h.
TEST(SavedPerLayer, IsMoreThanMegatronsPlannerCounts) {
  const std::int64_t planner = 121'634'816;
  EXPECT_EQ(SavedPerLayer(PlainJob()), 124'026'880);
  EXPECT_EQ(SavedPerLayer(PlainJob()) - planner, 2'392'064);
  const Job divided = Tensors(2, true, Buffers::TpGather::pooled, true);
  EXPECT_EQ(SavedPerLayer(divided) - planner / 2, 2'392'064 / 2);
  Job narrow = PlainJob();  // 2f + 4c + 8 + 4a below 6h: the planner counts too many
  DecoderOf(narrow).ffn = 2048;
  EXPECT_LT(SavedPerLayer(narrow), kN * (18 * kH + 4 * 2048));
}

TEST(SavedPerLayer, HasSiluOfTheGateWhereNothingFusesIt) {
  Job job = PlainJob();
  job.axes.buffers.fused_glu = false;
  EXPECT_EQ(SavedPerLayer(job), 147'095'552);  // + 2nf = 23,068,672
  job.axes.packing.gate_up = false;
  EXPECT_EQ(SavedPerLayer(job), 147'095'552);
}

// + 2n (h + c) = 10,485,760: v's entry weighs the whole packed block. Without rotation q, k and v all are views of it,
// and the block is counted once.
TEST(SavedPerLayer, KeepsThePackedProjectionThatAViewLooksAt) {
  Job job = PlainJob();
  job.axes.packing.qkv = true;
  EXPECT_EQ(SavedPerLayer(job), 124'026'880);
  DecoderOf(job).qkv_views = true;
  EXPECT_EQ(SavedPerLayer(job), 124'026'880 + 10'485'760);
  DecoderOf(job).rope = false;
  EXPECT_EQ(SavedPerLayer(job), 124'026'880);
}

Job EagerJob(AttentionKernel attention, NormKernel norm) {
  Job job = PlainJob();
  job.axes.buffers.fused_glu = false;
  DecoderOf(job).attention_kernel = attention;
  DecoderOf(job).norm_kernel = norm;
  return job;
}

// Measured: n (20h + 4c + 8f + 8 + 4a), + 16 for scalars that a division saves.
TEST(SavedPerLayer, HasTheWideInputOfAnEagerNorm) {
  EXPECT_EQ(SavedPerLayer(EagerJob(AttentionKernel::flash, NormKernel::eager)), 180'649'984);
}

// n (24h + 4c + 8f + 8 + 4a) + 8h; the measured 230,989,824 holds 8nh more, which PyTorch 1.13 keeps in `mean`.
TEST(SavedPerLayer, HasTheWideWeightOfANormThatCastsBehindIt) {
  EXPECT_EQ(SavedPerLayer(EagerJob(AttentionKernel::flash, NormKernel::eager_fp32_weight)), 230'989'824 - 8 * kN * kH);
}

// n (16h + 4c + 8f + 4 + 4a); the measured 180,633,600 holds 4nh more for the same reason.
TEST(SavedPerLayer, HasNoCastsOfANormThatDoesNotCast) {
  EXPECT_EQ(SavedPerLayer(EagerJob(AttentionKernel::flash, NormKernel::eager_low_precision)),
            180'633'600 - 4 * kN * kH);
}

// Measured: n (24h + 8f + 8) + 2 a s^2 b, and + 6 where the softmax is fp32 and cast.
TEST(SavedPerLayer, HasTheProbabilitiesOfEagerAttention) {
  EXPECT_EQ(SavedPerLayer(EagerJob(AttentionKernel::eager, NormKernel::eager)), 461'406'208);
  EXPECT_EQ(SavedPerLayer(EagerJob(AttentionKernel::eager_fp32_softmax, NormKernel::eager)), 998'277'120);
}

// 2, 5, 6 and 7 a s^2 b: softmax 2; with dropout + mask 1 + dropped 2; an fp32 softmax 4 and its cast 2, or, with
// dropout, 4 + 1 + 2, the cast being gone. 5 a s^2 b = 671,088,640.
TEST(SavedPerLayer, CountsScoresByHowTheSoftmaxIsWritten) {
  const auto scores = [](AttentionKernel kernel, double dropout) {
    Job job = EagerJob(kernel, NormKernel::eager);
    DecoderOf(job).attention_dropout = dropout;
    return SavedPerLayer(job) - kN * (24 * kH + 8 * 2816 + 8);
  };
  EXPECT_EQ(scores(AttentionKernel::eager, 0), 2 * kScores);
  EXPECT_EQ(scores(AttentionKernel::eager, 0.1), 671'088'640);
  EXPECT_EQ(scores(AttentionKernel::eager_fp32_softmax, 0), 6 * kScores);
  EXPECT_EQ(scores(AttentionKernel::eager_fp32_softmax, 0.1), 7 * kScores);
}

// Keys and values are copied for each query head: + 4n (h - c) = 12,582,912, but for lse 4na = 262,144 and the scores.
TEST(SavedPerLayer, HasKeysAndValuesOfEveryQueryHead) {
  EXPECT_EQ(SavedPerLayer(EagerJob(AttentionKernel::eager, NormKernel::fused)) - 2 * kScores,
            147'095'552 + 12'582'912 - 262'144);
}

Job InFp32(Job job) {
  Precision& precision = job.axes.precision;
  precision.params = precision.gradients = precision.reduce = precision.accumulate = precision.optimizer = DType::fp32;
  return job;
}

TEST(SavedPerLayer, IsThatOfAnFp32Network) {
  EXPECT_EQ(SavedPerLayer(InFp32(PlainJob())), 247'758'848);
  // Measured: n (40h + 16f + 8) + 4 a s^2 b, + 24.
  EXPECT_EQ(SavedPerLayer(InFp32(EagerJob(AttentionKernel::eager, NormKernel::eager))), 889'225'216);
  EXPECT_EQ(SavedPerLayer(InFp32(EagerJob(AttentionKernel::eager_fp32_softmax, NormKernel::eager))), 889'225'216);
}

// sbh (34 + 5as/h) = 813,694,976 of a GPT-style layer with dropout everywhere and no flash attention; LayerNorm's means
// and rstds are fp32 here, 16n, where the measured 813,727,752 has them in bf16, 8n, and 8 bytes of scalars.
TEST(SavedPerLayer, IsKorthikantisSumForGptStyleLayers) {
  Job job = PlainJob();
  Decoder& d = DecoderOf(job);
  MakeGptStyle(d);
  EXPECT_EQ(SavedPerLayer(job), 813'694'976 + 16 * kN);
  d.attention_kernel = AttentionKernel::flash;
  EXPECT_EQ(SavedPerLayer(job), 142'606'336 + 4 * kN * 16 + 16 * kN);  // 34 sbh, lse
}

struct LossBytes {
  std::int64_t forward = 0, between = 0, all = 0;

  friend bool operator==(const LossBytes&, const LossBytes&) = default;
};

void PrintTo(const LossBytes& bytes, std::ostream* out) {
  *out << bytes.forward << " " << bytes.between << " " << bytes.all;
}

/// Of the head, in units of nV bytes: the highest in the forward pass, what lives between the passes, the highest.
LossBytes LossOf(Job job, Partition::Loss loss) {
  job.axes.loss = loss;
  const Ledger ledger = BookOf(job);
  const auto units = [](Bytes bytes) {
    EXPECT_EQ(bytes.count() % (kN * 32000), 0);
    return bytes.count() / (kN * 32000);
  };
  return {units(ledger.highest_logits_in_forward), units(ledger.after_forward.at(0)[Category::logits]),
          units(ledger.highest_logits)};
}

TEST(CrossEntropy, PeaksAsEachFormWasMeasuredTo) {
  using Loss = Partition::Loss;
  const Job job = PlainJob();
  EXPECT_EQ(LossOf(job, Loss::upcast_logits), (LossBytes{8, 4, 12}));
  EXPECT_EQ(LossOf(job, Loss::upcast_returned), (LossBytes{10, 6, 14}));
  EXPECT_EQ(LossOf(job, Loss::upcast_fp32_returned), (LossBytes{8, 8, 16}));
  EXPECT_EQ(LossOf(job, Loss::low_precision), (LossBytes{4, 2, 6}));
  EXPECT_EQ(LossOf(job, Loss::softmax_saving), (LossBytes{10, 4, 10}));
  EXPECT_EQ(LossOf(job, Loss::softmax_in_place), (LossBytes{6, 4, 6}));
  EXPECT_EQ(LossOf(InFp32(job), Loss::upcast_logits), (LossBytes{8, 4, 12}));
  EXPECT_EQ(LossOf(InFp32(job), Loss::softmax_in_place), (LossBytes{4, 4, 4}));
}

// t = 1: 12nV = 1,572,864,000. t = 2: forward peak 10nV/t = 655,360,000, of which 262,144,000 are kept.
TEST(CrossEntropy, HasTheWorkedBytes) {
  EXPECT_EQ(BookOf(PlainJob()).highest_logits.count(), 1'572'864'000);
  const Ledger divided = BookOf(Tensors(2, true, Buffers::TpGather::pooled, true));
  EXPECT_EQ(divided.highest_logits_in_forward.count(), 655'360'000);
  EXPECT_EQ(divided.highest_logits.count(), 655'360'000);
  EXPECT_EQ(divided.after_forward.at(0)[Category::logits].count(), 262'144'000);
}

}  // namespace
}  // namespace tidemark::worked_numbers_layers_test
