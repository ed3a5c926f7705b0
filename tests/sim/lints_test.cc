// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/lints.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "models/findings/findings.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::lints_test {
namespace {

using ::testing::HasSubstr;

bool Has(const Job& job, const std::string& id) {
  const std::vector<Lint> lints = LintJob(job);
  return std::any_of(lints.begin(), lints.end(), [&](const Lint& lint) { return lint.id == id; });
}

Lint Find(const Job& job, const std::string& id) {
  for (const Lint& lint : LintJob(job)) {
    if (lint.id == id) {
      return lint;
    }
  }
  ADD_FAILURE() << "no lint " << id;
  return {};
}

TEST(Lints, AllReducingEveryMicrobatchIsPointedOut) {
  EXPECT_TRUE(Has(OracleJob("ddp-every", 4), "sync-every-microbatch"));
  EXPECT_FALSE(Has(OracleJob("ddp-every", 1), "sync-every-microbatch"));
  EXPECT_FALSE(Has(OracleJob("ddp-last", 4), "sync-every-microbatch"));
  EXPECT_FALSE(Has(OracleJob("fsdp2-scatter-each", 4), "sync-every-microbatch"));
  Job job = OracleJob("ddp-every", 4);
  EXPECT_THAT(Find(job, "sync-every-microbatch").message, HasSubstr("all-reduced 4 times a step"));
  EXPECT_THAT(Find(job, "sync-every-microbatch").hint, HasSubstr("sync.when: last"));
  job.last_window = {LastWindow::Policy::rescaled, 2};
  EXPECT_THAT(Find(job, "sync-every-microbatch").message, HasSubstr("all-reduced 2 times a step"));
  job.last_window.microbatches = 1;
  EXPECT_FALSE(Has(job, "sync-every-microbatch"));
}

TEST(Lints, ManyMicrobatchesSummedInBf16ArePointedOut) {
  EXPECT_TRUE(Has(OracleJob("ddp-last", 32), "low-precision-sum"));
  EXPECT_FALSE(Has(OracleJob("ddp-last", 31), "low-precision-sum"));
  EXPECT_FALSE(Has(OracleJob("nanotron", 64), "low-precision-sum"));
  EXPECT_FALSE(Has(OracleJob("fsdp2-scatter-each", 64), "low-precision-sum"));
  EXPECT_FALSE(Has(OracleJob("fsdp1", 64), "low-precision-sum"));  // shards are added up in fp32
  EXPECT_TRUE(Has(OracleJob("fsdp1-no-sync", 64), "low-precision-sum"));
}

// 0.12 % times the root of the number of microbatches.
TEST(Lints, ALowPrecisionSumIsToldByHowMuch) {
  EXPECT_THAT(Find(OracleJob("ddp-last", 64), "low-precision-sum").message, HasSubstr("about 1.0 %"));
  EXPECT_THAT(Find(OracleJob("ddp-last", 400), "low-precision-sum").message, HasSubstr("400 microbatches"));
  EXPECT_THAT(Find(OracleJob("ddp-last", 400), "low-precision-sum").message, HasSubstr("about 2.4 %"));
  Job job = OracleJob("ddp-last", 400);
  job.last_window = {LastWindow::Policy::rescaled, 36};
  EXPECT_THAT(Find(job, "low-precision-sum").message, HasSubstr("36 microbatches are summed in bf16"));
  EXPECT_THAT(Find(job, "low-precision-sum").message, HasSubstr("about 0.7 %"));
}

TEST(Lints, NoHintAdvisesWhatTheStrategyRefuses) {
  for (const Strategy& strategy : AllStrategies()) {
    Job job = OracleJob(strategy.defaults.name, 64);
    if (!Has(job, "low-precision-sum")) {
      continue;
    }
    const std::string hint = Find(job, "low-precision-sum").hint;
    const std::string key = strategy.SumOf(job).key;
    const bool advised = hint.find(key + ": fp32") != std::string::npos;
    (key == "precision.master" ? job.axes.precision.master.emplace() : job.axes.precision.accumulate) = DType::fp32;
    EXPECT_EQ(advised, strategy.Accept(job).ok()) << strategy.defaults.name << ": " << hint;
  }
  EXPECT_THAT(Find(OracleJob("ddp-last", 64), "low-precision-sum").hint, HasSubstr("cannot keep this sum in fp32"));
}

TEST(Lints, AWindowThatIsNotTheMeanIsAnError) {
  Job job = OracleJob("ddp-last", 4);
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = "(i + 1) % steps == 0";
  EXPECT_FALSE(Has(job, "wrong-gradient"));
  job.axes.sync.expression = "i % (steps - 1) == 0";  // windows of 1 and 3, each divided by 4
  EXPECT_TRUE(Has(job, "wrong-gradient"));
  job = OracleJob("ddp-last", 4);
  job.last_window = {LastWindow::Policy::not_rescaled, 3};
  EXPECT_TRUE(Has(job, "wrong-gradient"));
  job.last_window.policy = LastWindow::Policy::rescaled;
  EXPECT_FALSE(Has(job, "wrong-gradient"));
  job.last_window.policy = LastWindow::Policy::drop;
  EXPECT_FALSE(Has(job, "wrong-gradient"));
  EXPECT_TRUE(Has(job, "dropped-microbatches"));
}

TEST(Lints, AWrongStrategyHasAHintOfItsOwn) {
  Job job = OracleJob("colossalai-gemini", 4);
  Decoder& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = 1;
  decoder.vocabulary = 1000;  // one chunk holds it all, which stays gathered
  EXPECT_THAT(Find(job, "wrong-gradient").hint, HasSubstr("lower shard.min_chunk_elements"));
  job = OracleJob("ddp-last", 4);
  job.last_window = {LastWindow::Policy::not_rescaled, 3};
  EXPECT_THAT(Find(job, "wrong-gradient").hint, HasSubstr("last_window.policy: rescaled"));
}

TEST(Lints, WhatIsDeclaredWrongComesWithItsHint) {
  Job job = OracleJob("ddp-last", 4);
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = "i % (steps - 1) == 0";
  EXPECT_THAT(Find(job, "wrong-gradient").hint, HasSubstr("(i + 1) % steps == 0"));
  job = OracleJob("nanotron", 2);
  job.layout.tp = 2;
  job.layout.sp = true;
  job.axes.buffers.tp_gather = Buffers::TpGather::pooled_unsafe;
  EXPECT_THAT(Find(job, "wrong-gradient").hint, HasSubstr("set buffers.tp_gather to pooled"));
  EXPECT_EQ(Find(job, "wrong-gradient").hint, FindStrategy("nanotron")->DeclaredWrong(job)->hint);
}

TEST(Lints, MicrobatchesBehindTheLastStepArePointedOut) {
  Job job = OracleJob("ddp-last", 8);
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = "i % 3 == 0";  // steps behind 0, 3, 6; microbatch 7 is left
  EXPECT_THAT(Find(job, "left-over-microbatches").message, HasSubstr("1 of 8 microbatches"));
  job.axes.sync.expression = "i == 2";
  EXPECT_THAT(Find(job, "left-over-microbatches").message, HasSubstr("5 of 8 microbatches"));
  job.axes.sync.expression = "i % 3 == 0 or i == steps - 1";
  EXPECT_FALSE(Has(job, "left-over-microbatches"));
}

// fp16 ends at 65,504; Gemini multiplies the sum by N = 4 within the chunk before it adds to it.
TEST(Lints, AnFp16SumThatIsRaisedOverflowsEarly) {
  Job job = OracleJob("colossalai-gemini", 4);
  EXPECT_FALSE(Has(job, "early-overflow"));
  Precision& precision = job.axes.precision;
  precision.params = precision.gradients = precision.reduce = precision.accumulate = DType::fp16;
  EXPECT_TRUE(FindStrategy("colossalai-gemini")->Accept(job).ok());
  EXPECT_THAT(Find(job, "early-overflow").message, HasSubstr("beyond 16376 overflow"));
  job.layout.dp = 1;
  EXPECT_FALSE(Has(job, "early-overflow"));
}

TEST(Lints, AFixedBucketLargerThanTheModelIsPointedOut) {
  for (const char* strategy : {"deepspeed-zero1", "deepspeed-zero2", "deepspeed-coalesce", "deepspeed-zero3"}) {
    Job job = OracleJob(strategy, 4);  // 4 layers of 11,274,240 and twice 32,768,000 elements, and a norm
    EXPECT_THAT(
        Find(job, "bucket-larger-than-model").message,
        HasSubstr("holds 500,000,000 elements, whatever the model's size; this rank has 110,633,984 parameters"))
        << strategy;
    job.axes.sync.bucket_elements = 110'633'984;
    EXPECT_FALSE(Has(job, "bucket-larger-than-model"));
  }
  EXPECT_FALSE(
      Has(OracleJob("deepspeed-zero0", 4), "bucket-larger-than-model"));  // buckets are as large as what is in them
  EXPECT_FALSE(Has(OracleJob("ddp-last", 4), "bucket-larger-than-model"));
}

TEST(Lints, AMaskThatNothingReadsIsPointedOutWhereItIsLarge) {
  Job job = OracleJob("megatron", 4);
  job.axes.buffers.attention_mask = true;
  EXPECT_FALSE(Has(job, "loaded-mask"));  // 2 * 2,048^2 bytes, 8 MiB
  job.sequence_length = 8192;
  EXPECT_THAT(Find(job, "loaded-mask").message, HasSubstr("a mask of 128 MiB"));
  job.axes.buffers.attention_mask = false;
  EXPECT_FALSE(Has(job, "loaded-mask"));
}

TEST(Lints, ARingThatTheStrategysSystemHasNotIsPointedOut) {
  for (const char* strategy : {"megatron", "ddp-last"}) {
    Job job = OracleJob(strategy, 4);
    EXPECT_FALSE(Has(job, "ring-of-another-system"));
    job.layout.cp = 2;
    EXPECT_EQ(Has(job, "ring-of-another-system"), job.strategy != "megatron");
  }
}

TEST(Lints, ExpertsThatTheStrategysSystemComputesOtherwiseArePointedOut) {
  using enum Experts::Layer;
  for (const Experts::Layer layer : {megatron, torchtitan}) {
    for (const char* strategy : {"megatron", "ddp-last", "fsdp2-defer"}) {
      Job job = OracleJob(strategy, 4);
      EXPECT_FALSE(Has(job, "experts-of-another-system"));
      std::get<Decoder>(job.network.shape).experts = {.count = 8, .ffn = 512, .router_fp32 = true, .layer = layer};
      const bool own = layer == megatron ? job.strategy == "megatron" : job.strategy == "fsdp2-defer";
      EXPECT_EQ(Has(job, "experts-of-another-system"), !own) << strategy;
    }
  }
}

TEST(Lints, OneBackwardPassForAllMicrobatchesIsPointedOut) {
  const Lint lint = Find(OracleJob("single-backward", 4), "retained-graphs");
  EXPECT_THAT(lint.message, HasSubstr("of all 4 microbatches"));
  EXPECT_THAT(lint.hint, HasSubstr("gradient_flow.kind: microbatch"));
  EXPECT_FALSE(Has(OracleJob("single-backward", 1), "retained-graphs"));
}

TEST(Lints, AForwardPassOutsideNoSyncIsPointedOut) {
  Job job = OracleJob("ddp-last", 4);
  EXPECT_FALSE(Has(job, "forward-outside-no-sync"));
  job.axes.sync.forward_in_no_sync = false;
  EXPECT_TRUE(Has(job, "forward-outside-no-sync"));
}

TEST(Lints, ViewsHelpOnlyWithGradientsZeroedInPlace) {
  Job job = OracleJob("ddp-last", 4);
  job.axes.buffers.gradient_as_bucket_view = true;
  EXPECT_TRUE(Has(job, "view-and-set-to-none"));
  job.axes.buffers.set_to_none = false;
  EXPECT_FALSE(Has(job, "view-and-set-to-none"));
}

TEST(Lints, APipelineWithFewerMicrobatchesThanStagesIsPointedOut) {
  Job job = OracleJob("nanotron", 3);
  job.layout.pp = 4;
  EXPECT_TRUE(Has(job, "pipeline-underfilled"));
  job.accumulation_steps = 4;
  EXPECT_FALSE(Has(job, "pipeline-underfilled"));
}

// JAX takes one mean over the tokens of all ranks: a single microbatch has no other mean, 4 have 4. The loss of pairs
// is no mean over tokens.
TEST(Lints, MeansThatAreTakenOverAllRanksOrOverPairsCountAsSuch) {
  constexpr const char* kId = "mean-of-means";
  Job job = OracleJob("jax-scan", 1);
  job.layout.dp = 2;
  job.mean_sequence_length = 1500;
  EXPECT_FALSE(Has(job, kId));
  job.accumulation_steps = 4;
  EXPECT_THAT(Find(job, kId).message, HasSubstr("the mean of 4 micro"));
  Decoder tower = std::get<Decoder>(job.network.shape);
  job.network.shape = DualEncoder{.first = tower, .second = tower, .representation = 64};
  EXPECT_FALSE(Has(job, kId));
}

// Two ranks with 4 microbatches each: 8 means are averaged, whatever each has of tokens.
TEST(Lints, MeansOfUnequalMicrobatchesArePointedOut) {
  constexpr const char* kId = "mean-of-means";
  Job job = OracleJob("ddp-last", 4);
  job.layout.dp = 2;
  EXPECT_FALSE(Has(job, kId));
  job.mean_sequence_length = 1500;
  EXPECT_THAT(Find(job, kId).message, HasSubstr("1,500 tokens on average and 2,048 at most: the mean of 8 micro"));
  EXPECT_THAT(Find(job, kId).hint, HasSubstr("count the tokens of the whole window"));  // DDP has no such setting
  EXPECT_THAT(Find(job, kId).hint, HasSubstr("strategy=fsdp2-scatter-each with loss_scale=global-tokens"));
  job.mean_sequence_length = 2048;
  EXPECT_FALSE(Has(job, kId));
  job = OracleJob("fsdp2-scatter-each", 4);
  job.mean_sequence_length = 1500;
  EXPECT_THAT(Find(job, kId).hint, HasSubstr("loss_scale=global-tokens"));
  job.axes.loss_scale = LossScale::global_tokens;  // as the hint says
  EXPECT_FALSE(Has(job, kId));
  job = OracleJob("ddp-last", 1);
  job.mean_sequence_length = 1500;
  job.layout.dp = 1;  // one mean
  EXPECT_FALSE(Has(job, kId));
}

TEST(Lints, EveryLintAndItsCauseAreExplained) {
  for (const Strategy& strategy : AllStrategies()) {
    for (const Lint& lint : LintJob(OracleJob(strategy.defaults.name, 64))) {
      EXPECT_NE(FindKnownFinding(lint.explained_by()), nullptr) << lint.id;
    }
  }
  EXPECT_EQ(FindKnownFinding("no-such-finding"), nullptr);
}

TEST(Lints, OptionsOfANetworkThatChangeNothingAreNamed) {
  constexpr const char* kId = "option-without-effect";
  Job job = OracleJob("ddp-last", 4);
  Decoder& decoder = std::get<Decoder>(job.network.shape);
  EXPECT_FALSE(Has(job, kId));
  decoder.qkv_views = true;
  EXPECT_THAT(Find(job, kId).message, HasSubstr("qkv_views"));
  job.axes.packing.qkv = true;  // as the hint says
  EXPECT_FALSE(Has(job, kId));
  decoder.attention_dropout = 0.1;
  job.sources["network.attention_dropout"] = "gpt2 (job.yaml:1)";  // a model's, whatever its kernel
  EXPECT_FALSE(Has(job, kId));
  job.sources["network.attention_dropout"] = "--set";
  EXPECT_THAT(Find(job, kId).message, HasSubstr("keeps no mask"));
  decoder.attention_kernel = Decoder::AttentionKernel::eager;
  EXPECT_FALSE(Has(job, kId));
}

TEST(Lints, FusionsOfWhatANetworkDoesNotHaveAreNamed) {
  constexpr const char* kId = "option-without-effect";
  Job job = OracleJob("ddp-last", 4);
  Decoder& decoder = std::get<Decoder>(job.network.shape);
  job.axes.buffers.fused_rope = job.axes.buffers.fused_glu = false;
  EXPECT_FALSE(Has(job, kId));
  decoder.qkv_views = job.axes.packing.qkv = true;  // rotated out of the packed projection in any case
  EXPECT_THAT(Find(job, kId).message, HasSubstr("buffers.fused_rope"));
  decoder.qkv_views = false;
  decoder.rope = false;
  EXPECT_THAT(Find(job, kId).message, HasSubstr("buffers.fused_rope"));
  job.axes.buffers.fused_rope = true;
  EXPECT_FALSE(Has(job, kId));
  decoder.ffn_kind = Decoder::Ffn::two_layer;
  EXPECT_THAT(Find(job, kId).message, HasSubstr("buffers.fused_glu"));
}

TEST(Lints, AStaticGraphWhoseFirstBackwardPassIsInNoSyncIsPointedOut) {
  constexpr const char* kId = "static-graph-with-no-sync";
  Job job = OracleJob("ddp-last", 4);
  EXPECT_FALSE(Has(job, kId));
  job.axes.sync.static_graph = true;
  EXPECT_TRUE(Has(job, kId));
  job.axes.sync.forward_in_no_sync = false;
  EXPECT_FALSE(Has(job, kId));
  job.axes.sync.forward_in_no_sync = true;
  job.accumulation_steps = 1;
  EXPECT_FALSE(Has(job, kId));
  for (const char* strategy : {"ddp-every", "single-backward"}) {
    job = OracleJob(strategy, 4);
    job.axes.sync.static_graph = true;
    EXPECT_FALSE(Has(job, kId)) << strategy;
  }
}

TEST(Lints, AKernelOfAnUpdateThatIsOneOperationAnywayIsPointedOut) {
  constexpr const char* kId = "option-without-effect";
  Job job = OracleJob("ddp-last", 4);
  job.axes.optimizer_step.kernel = OptimizerStep::Kernel::foreach_;
  EXPECT_FALSE(Has(job, kId));
  job.optimizer = OptimizerKind::sgd;
  EXPECT_THAT(Find(job, kId).message, HasSubstr("one operation in place"));
}

TEST(Lints, KeysOfRecomputeThatChangeNothingAreNamed) {
  constexpr const char* kId = "option-without-effect";
  Job job = OracleJob("ddp-last", 4);
  Recompute& recompute = job.axes.recompute;
  recompute.every = 3;
  EXPECT_THAT(Find(job, kId).message, HasSubstr("recompute.every"));
  recompute.policy = Recompute::Policy::every_n;  // as the hint says
  EXPECT_FALSE(Has(job, kId));
  recompute = {.policy = Recompute::Policy::full, .norm = true};
  EXPECT_THAT(Find(job, kId).message, HasSubstr("only recompute.policy selective"));
  recompute.policy = Recompute::Policy::selective;  // as the hint says
  EXPECT_FALSE(Has(job, kId));
  recompute = {.policy = Recompute::Policy::selective, .attention = false};
  EXPECT_THAT(Find(job, kId).message, HasSubstr("no part is selected"));
  recompute.activation = recompute.feed_forward = true;
  EXPECT_THAT(Find(job, kId).message, HasSubstr("part of the feed-forward"));
  recompute.activation = false;  // as the hint says
  EXPECT_FALSE(Has(job, kId));
  recompute.latent_heads = true;
  EXPECT_THAT(Find(job, kId).message, HasSubstr("there is no multi-latent attention"));
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.kv_heads = decoder.heads;
  decoder.latent = {.kv_lora_rank = 8, .rope_head_size = 2, .value_head_size = 4};
  EXPECT_FALSE(Has(job, kId));
  decoder.qkv_views = true;
  EXPECT_THAT(Find(job, kId).message, HasSubstr("qkv_views"));
  decoder.qkv_views = false;
  job.axes.buffers.fused_rope = false;
  EXPECT_FALSE(Has(job, kId)) << "latent queries are rotated, however they are packed";
}

TEST(Lints, NormsDoneAgainDropNothingWhereGatheredRowsAreKept) {
  constexpr const char* kId = "option-without-effect";
  Job job = OracleJob("nanotron", 4);
  job.layout.tp = 2;
  job.axes.recompute = {.policy = Recompute::Policy::selective, .attention = false, .norm = true};
  job.axes.buffers.tp_gather = Buffers::TpGather::cached;
  EXPECT_FALSE(Has(job, kId));  // rows are whole
  job.layout.sp = true;
  EXPECT_THAT(Find(job, kId).message, HasSubstr("drops no norm's output"));
  job.axes.buffers.tp_gather = Buffers::TpGather::pooled;  // as the hint says
  EXPECT_FALSE(Has(job, kId));
}

TEST(Lints, AttentionDoneAgainGainsNothingOfAFlashKernel) {
  constexpr const char* kId = "recompute-without-gain";
  Job job = OracleJob("ddp-last", 4);
  EXPECT_FALSE(Has(job, kId));
  job.axes.recompute.policy = Recompute::Policy::selective;
  EXPECT_TRUE(Has(job, kId));
  std::get<Decoder>(job.network.shape).attention_kernel = Decoder::AttentionKernel::eager;
  EXPECT_FALSE(Has(job, kId));
}

TEST(Lints, ALanguageModelsLossBesideAContrastiveOneReturnsNoLogits) {
  constexpr const char* kId = "option-without-effect";
  Job job = OracleJob("gradcache", 4);
  job.axes.loss = Partition::Loss::upcast_returned;
  EXPECT_FALSE(Has(job, kId));  // there is no such loss
  std::get<DualEncoder>(job.network.shape).lm_loss = true;
  EXPECT_THAT(Find(job, kId).message, HasSubstr("holds no logits"));
  job.axes.loss = Partition::Loss::upcast_fp32_returned;
  EXPECT_TRUE(Has(job, kId));
  job.axes.loss = Partition::Loss::upcast_logits;  // as the hint says
  EXPECT_FALSE(Has(job, kId));
}

}  // namespace
}  // namespace tidemark::lints_test
