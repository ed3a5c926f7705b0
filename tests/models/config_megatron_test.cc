// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/models/megatron_config.h"
#include "tests/models/sample.h"

namespace tidemark::config_megatron_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kSample = "megatron-llama3-8b.args";

std::string SampleWith(const std::string& line, const std::string& instead) {
  return SampleText(kSample, line, instead);
}

/// The stages of a pipeline, "2,1".
std::string StagesOf(const Settings& settings) {
  const ConfigValue* stages = Find(settings, "layout.layers_per_stage");
  std::string all;
  for (const ConfigValue& stage : stages == nullptr ? std::vector<ConfigValue>() : stages->items) {
    all += (all.empty() ? "" : ",") + stage.text;
  }
  return all;
}

TEST(ConfigMegatron, ReadsTheSample) {
  const Settings settings = MustRead(kFormat, SampleText(kSample));
  EXPECT_EQ(TextOf(settings, "strategy"), "megatron-dist-opt");
  EXPECT_EQ(TextOf(settings, "layout.dp"), "4");  // 8 / 2
  EXPECT_EQ(TextOf(settings, "layout.tp"), "2");
  EXPECT_EQ(TextOf(settings, "layout.sp"), "true");
  EXPECT_EQ(TextOf(settings, "accumulation_steps"), "8");  // 32 / (1 * 4)
  EXPECT_EQ(TextOf(settings, "network.kv_heads"), "8");
  EXPECT_EQ(TextOf(settings, "network.vocabulary"), "128256");  // 501 * 256
  EXPECT_EQ(TextOf(settings, "network.ffn_kind"), "glu");
  EXPECT_EQ(TextOf(settings, "network.linear_bias"), "false");
  EXPECT_EQ(TextOf(settings, "network.qkv_bias"), "false");
  EXPECT_EQ(TextOf(settings, "network.rope"), "true");
  EXPECT_EQ(TextOf(settings, "network.positions"), "0");
  EXPECT_EQ(TextOf(settings, "sync.overlap"), "true");
  EXPECT_EQ(settings.at("accumulation_steps").source, "job.args:12");
  EXPECT_EQ(settings.at("machine").source, "assumed");
}

/// megatron/training/arguments.py: what is not said.
TEST(ConfigMegatron, DefaultsAreMegatrons) {
  const Settings settings = MustRead(kFormat, Least("--bf16"), kRanks);
  EXPECT_EQ(TextOf(settings, "strategy"), "megatron");
  EXPECT_EQ(TextOf(settings, "accumulation_steps"), "1");
  EXPECT_EQ(TextOf(settings, "network.ffn"), "2048");  // 4 * 512
  EXPECT_EQ(TextOf(settings, "network.ffn_kind"), "two-layer");
  EXPECT_EQ(TextOf(settings, "network.kv_heads"), "8");
  EXPECT_EQ(TextOf(settings, "network.norm"), "layer");
  EXPECT_EQ(TextOf(settings, "network.positions"), "1024");
  EXPECT_EQ(TextOf(settings, "network.vocabulary"), "50304");  // 50257, up to a multiple of 128
  EXPECT_EQ(TextOf(settings, "network.tied_embeddings"), "true");
  EXPECT_EQ(TextOf(settings, "network.dropout"), "0.1");
  EXPECT_EQ(TextOf(settings, "network.attention_kernel"), "flash");
  EXPECT_EQ(TextOf(settings, "precision.params"), "bf16");
  EXPECT_EQ(TextOf(settings, "precision.accumulate"), "fp32");
  EXPECT_EQ(TextOf(settings, "precision.master"), "fp32");
  EXPECT_EQ(TextOf(settings, "optimizer"), "adamw");
  EXPECT_EQ(TextOf(settings, "optimizer_step.clip_norm"), "1.0");
  EXPECT_EQ(TextOf(settings, "sync.overlap"), "false");
  EXPECT_EQ(TextOf(settings, "buffers.fused_accumulation"), "true");
  EXPECT_EQ(TextOf(settings, "recompute.policy"), "(nothing)");
}

TEST(ConfigMegatron, TheVocabularyIsFilledUpForEachTensorParallelRank) {
  const auto rows = [](const std::string& more) { return KeyOf(more, "network.vocabulary"); };
  EXPECT_EQ(rows("--tensor-model-parallel-size 4"), "50688");  // 99 * 512
  EXPECT_EQ(rows("--make-vocab-size-divisible-by 1"), "50257");
  EXPECT_EQ(rows("--padded-vocab-size 50432 --tensor-model-parallel-size 2"), "50432");
  EXPECT_EQ(rows("--tokenizer-type NullTokenizer --vocab-size 131073 --tensor-model-parallel-size 4"), "131584");
  const std::string unknown = Least("--tokenizer-type HuggingFaceTokenizer --tensor-model-parallel-size 2");
  EXPECT_THAT(RefusalOf(kFormat, unknown, kRanks), HasSubstr("network.vocabulary=..., a multiple of 256"));
  EXPECT_TRUE(ReadForeign(kFormat, unknown, {"layout.dp=8", "network.vocabulary=128256"}).ok());
}

TEST(ConfigMegatron, DtypesFollowFromTwoSwitches) {
  const auto dtypes = [](const std::string& more) {
    const Settings settings = MustRead(kFormat, Least("--use-distributed-optimizer " + more), kRanks);
    return TextOf(settings, "precision.params") + " " + TextOf(settings, "precision.reduce") + " " +
           TextOf(settings, "precision.master");
  };
  EXPECT_EQ(dtypes(""), "fp32 fp32 none");
  EXPECT_EQ(dtypes("--bf16"), "bf16 fp32 fp32");
  EXPECT_EQ(dtypes("--bf16 --grad-reduce-in-bf16"), "bf16 bf16 fp32");
  EXPECT_EQ(dtypes("--fp16"), "fp16 fp16 fp32");
  EXPECT_EQ(dtypes("--fp16 --accumulate-allreduce-grads-in-fp32"), "fp16 fp32 fp32");
  EXPECT_THAT(RefusalOf(kFormat, Least("--bf16 --fp16"), kRanks), HasSubstr("are both there"));
}

/// validate_args switches it off where gradients are in fp32 anyway.
TEST(ConfigMegatron, SumsInFp32AreForNarrowGradients) {
  const std::string sums = "--bf16 --use-distributed-optimizer --ddp-reduce-scatter-with-fp32-accumulation ";
  EXPECT_EQ(KeyOf(sums, "sync.fp32_accumulation"), "(nothing)");
  EXPECT_EQ(KeyOf(sums + "--grad-reduce-in-bf16", "sync.fp32_accumulation"), "true");
}

TEST(ConfigMegatron, RanksAreTheLaunchersOrTheCommandLines) {
  EXPECT_THAT(RefusalOf(kFormat, Least()), HasSubstr("the number of data-parallel ranks"));
  EXPECT_EQ(TextOf(MustRead(kFormat, "torchrun --nproc-per-node 8 --nnodes=4 pretrain_gpt.py " + Least()), "layout.dp"),
            "32");
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("--nproc_per_node 8", "--nproc_per_node 9")),
              HasSubstr("world size (9) is not divisible by total_model_size (2)"));
  EXPECT_EQ(TextOf(MustRead(kFormat, SampleText(kSample), {"layout.dp=16"}), "accumulation_steps"), "2");
  EXPECT_THAT(RefusalOf(kFormat, SampleText(kSample), {"layout.dp=5"}),
              HasSubstr("is not divisible by micro batch size"));
  EXPECT_TRUE(ReadForeign(kFormat, SampleText(kSample), {"layout.dp=5", "accumulation_steps=3"}).ok());
}

TEST(ConfigMegatron, PipelinesHaveChunksAndUnevenStages) {
  const std::string four = "--pipeline-model-parallel-size 4 --global-batch-size 32 ";
  EXPECT_EQ(TextOf(MustRead(kFormat, Least(four), {"layout.dp=2"}), "schedule"), "1f1b");
  const Settings chunks = MustRead(kFormat, Least(four + "--num-layers-per-virtual-pipeline-stage 1"), {"layout.dp=2"});
  EXPECT_EQ(TextOf(chunks, "schedule"), "interleaved");
  EXPECT_EQ(TextOf(chunks, "layout.vpp"), "3");  // 12 / 4 / 1
  EXPECT_THAT(RefusalOf(kFormat, Least(four + "--num-layers-per-virtual-pipeline-stage 5"), {"layout.dp=2"}),
              HasSubstr("no whole number of chunks"));
  const auto stages = [&](const std::string& more) {
    return StagesOf(MustRead(kFormat, Least(four + more), {"layout.dp=2"}));
  };
  EXPECT_EQ(stages(""), "");
  EXPECT_EQ(stages("--decoder-first-pipeline-num-layers 2 --decoder-last-pipeline-num-layers 4"), "2,3,3,4");
  EXPECT_EQ(stages("--decoder-last-pipeline-num-layers 3"), "3,3,3,3");
  // Of a rank's layers each chunk has its share: 3 of the first rank's 6, 7 of the others' 14.
  EXPECT_EQ(stages("--num-layers 48 --num-virtual-stages-per-pipeline-rank 2 --decoder-first-pipeline-num-layers 6"),
            "3,7,7,7,3,7,7,7");
  // (31 + 1) / 4 / 4 chunks
  EXPECT_EQ(stages("--num-layers 31 --num-layers-per-virtual-pipeline-stage 4 --account-for-loss-in-pipeline-split"),
            "4,4,4,4,4,4,4,3");
  const std::string six =
      "--num-layers 6 --num-virtual-stages-per-pipeline-rank 2 --account-for-embedding-in-pipeline-split "
      "--account-for-loss-in-pipeline-split";  // (6 + 1 + 1) / 8
  EXPECT_THAT(RefusalOf(kFormat, Least(four + six), {"layout.dp=2"}), HasSubstr("stages without layers"));
  EXPECT_THAT(
      RefusalOf(kFormat, Least(four + six + " --num-virtual-stages-per-pipeline-rank 1000000"), {"layout.dp=2"}),
      HasSubstr("more than 6 layers"));
  const Settings given = MustRead(kFormat, Least(four), {"layout.dp=2", "layout.vpp=3"});
  EXPECT_EQ(TextOf(given, "schedule"), "interleaved");
  EXPECT_THAT(RefusalOf(kFormat, Least(four + "--account-for-loss-in-pipeline-split"), {"layout.dp=2"}),
              HasSubstr("12 layers cannot be divided so over 4 stages"));
}

TEST(ConfigMegatron, Recomputation) {
  const auto policy = [](const std::string& more) {
    const Settings settings = MustRead(kFormat, Least(more), kRanks);
    return TextOf(settings, "recompute.policy") + " " + TextOf(settings, "recompute.attention") + " " +
           TextOf(settings, "recompute.norm");
  };
  EXPECT_EQ(policy("--recompute-activations"), "selective true false");
  EXPECT_EQ(policy("--recompute-granularity selective --recompute-modules core_attn layernorm"), "selective true true");
  EXPECT_EQ(policy("--recompute-granularity selective --recompute-modules layernorm"), "selective false true");
  const std::string full = "--recompute-granularity full --recompute-method ";
  EXPECT_EQ(policy(full + "uniform --recompute-num-layers 1"), "full (nothing) (nothing)");
  EXPECT_EQ(policy(full + "block --recompute-num-layers 12"), "full (nothing) (nothing)");
  EXPECT_THAT(RefusalOf(kFormat, Least(full + "uniform --recompute-num-layers 2"), kRanks),
              HasSubstr("several at a time"));
  EXPECT_THAT(RefusalOf(kFormat, Least("--recompute-granularity full"), kRanks), HasSubstr("needs recompute-method"));
  EXPECT_EQ(policy("--recompute-activations " + full + "uniform --recompute-num-layers 1"), "selective true false");
  // Of the longest stage: one has ten layers here, and with two chunks each has six.
  const std::string uneven =
      "--num-layers 24 --pipeline-model-parallel-size 4 --decoder-first-pipeline-num-layers 2 "
      "--decoder-last-pipeline-num-layers 2 --global-batch-size 32 " +
      full + "block ";
  EXPECT_THAT(RefusalOf(kFormat, Least(uneven + "--recompute-num-layers 6"), kRanks),
              HasSubstr("some layers of a stage"));
  const std::string chunks =
      "--num-layers 24 --pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
      "--global-batch-size 64 " +
      full + "block --recompute-num-layers 6";
  EXPECT_EQ(KeyOf(chunks, "recompute.policy"), "full");
  EXPECT_THAT(RefusalOf(kFormat, Least(full + "block --recompute-num-layers 6"), kRanks),
              HasSubstr("some layers of a stage"));
}

TEST(ConfigMegatron, AttentionIsTransformerEnginesUnlessSaid) {
  const auto kernel = [](const std::string& more) { return KeyOf(more, "network.attention_kernel"); };
  EXPECT_EQ(kernel("--attention-backend unfused"), "eager");
  EXPECT_EQ(kernel("--attention-backend flash"), "flash");
  EXPECT_EQ(kernel("--transformer-impl local"), "eager");
}

TEST(ConfigMegatron, UpdatedWeightsAreGatheredInTheNextForwardPass) {
  const std::string gathers = "--use-distributed-optimizer --overlap-grad-reduce --overlap-param-gather ";
  EXPECT_EQ(KeyOf(gathers, "sync.overlap_gather"), "true");
  EXPECT_EQ(KeyOf("--use-distributed-optimizer", "sync.overlap_gather"), "(nothing)");
  // Chunks leave together there, unless that is switched off; without chunks the switch says nothing.
  const std::string four = gathers + "--pipeline-model-parallel-size 4 --global-batch-size 32 ";
  const std::vector<std::string> two{"layout.dp=2"};
  EXPECT_TRUE(ReadForeign(kFormat, Least(four + "--no-align-param-gather"), two).ok());
  const std::string chunks = four + "--num-layers-per-virtual-pipeline-stage 1 ";
  EXPECT_EQ(TextOf(MustRead(kFormat, Least(chunks), two), "sync.overlap_gather"), "true");
  EXPECT_THAT(RefusalOf(kFormat, Least(chunks + "--no-align-param-gather"), two), HasSubstr("gather for themselves"));
}

TEST(ConfigMegatron, GradientsMayBeDividedByAllTokens) {
  EXPECT_EQ(KeyOf("", "loss_scale"), "microbatches");
  EXPECT_EQ(KeyOf("--calculate-per-token-loss", "loss_scale"), "summed-tokens");
}

/// Its data loader makes them unless it is told not to, or masks documents by their lengths.
TEST(ConfigMegatron, AttentionMasksAreLoaded) {
  const auto mask = [](const std::string& more) { return KeyOf(more, "buffers.attention_mask"); };
  EXPECT_EQ(mask(""), "true");
  EXPECT_EQ(mask("--no-create-attention-mask-in-dataloader"), "false");
  EXPECT_EQ(mask("--dataloader-inter-document-masking"), "false");
}

/// arguments.py: total_model_size is tensor * pipeline * context.
TEST(ConfigMegatron, ContextParallelRanksShareSequencesAndTakeNoMoreOfThem) {
  EXPECT_EQ(KeyOf("", "layout.cp"), "1");
  EXPECT_EQ(KeyOf("--context-parallel-size 2", "layout.cp"), "2");
  EXPECT_EQ(KeyOf("--context-parallel-size 2 --cp-comm-type p2p", "layout.cp"), "2");
  EXPECT_EQ(KeyOf("--context-parallel-size 2 --cp-comm-type p2p p2p", "layout.cp"), "2");
  EXPECT_EQ(KeyOf("--cp-comm-type a2a", "layout.cp"), "1");  // which nobody looks at
  const std::string launched = "torchrun --nproc_per_node 8 pretrain_gpt.py " + Least("--context-parallel-size 2");
  EXPECT_EQ(TextOf(MustRead(kFormat, launched), "layout.dp"), "4");
  EXPECT_THAT(RefusalOf(kFormat, "torchrun --nproc_per_node 8 pretrain_gpt.py " + Least("--context-parallel-size 3")),
              HasSubstr("world size (8) is not divisible by total_model_size (3)"));
}

TEST(ConfigMegatron, WhatIsNotModelledIsRefusedByName) {
  for (const auto& [option, reason] : std::vector<std::pair<std::string, std::string>>{
           {"--context-parallel-size 2 --cp-comm-type a2a", "do not go round a ring"},
           {"--context-parallel-size 4 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2", "a ring"},
           {"--fp8-format hybrid", "this version: fp8"},
           {"--optimizer-cpu-offload", "host memory"},
           {"--overlap-param-gather", "with use-distributed-optimizer only"},
           {"--overlap-param-gather --use-distributed-optimizer", "with overlap-grad-reduce only"},
           {"--use-torch-fsdp2", "FSDP"},
           {"--optimizer muon", "'muon' is not supported"},
           {"--position-embedding-type yarn", "'yarn' is not supported"},
           {"--cross-entropy-loss-fusion --cross-entropy-fusion-impl te", "'te' is not supported"},
           {"--output-logit-dtype fp32", "logits that are wider"},
           {"--freeze-all-layers", "not trained"},
           {"--no-bias-gelu-fusion", "a kernel of its own"},
           {"--attention-backend unfused --no-masked-softmax-fusion", "scores that kernels of their own"},
           {"--cpu-offloading-num-layers 8", "host memory"},
           {"--batch-size 4", "use micro-batch-size"},
           {"--micro-batch-sizes 8", "did you mean micro-batch-size?"},
           {"--tensor-model-parallel-size $TP", "for a shell to fill in"}}) {
    EXPECT_THAT(RefusalOf(kFormat, Least(option), kRanks), HasSubstr(reason)) << option;
  }
}

TEST(ConfigMegatron, OtherProgramsAreRefused) {
  EXPECT_THAT(RefusalOf(kFormat, "python pretrain_bert.py " + Least(), kRanks), HasSubstr("other networks than GPT"));
  EXPECT_THAT(RefusalOf(kFormat, "torchrun --nproc_per_node 8 tools/pretrain_t5.py " + Least()),
              HasSubstr("other networks than GPT"));
  EXPECT_THAT(RefusalOf(kFormat, "MODE: inference\nMODEL_ARGS: {--num-layers: 2, --hidden-size: 64}\n"),
              HasSubstr("is not training"));
}

TEST(ConfigMegatron, ReadsNormsOfQueriesAndKeys) {
  EXPECT_EQ(KeyOf("--qk-layernorm", "network.qk_norm"), "true");
  EXPECT_EQ(KeyOf("", "network.qk_norm"), "false");
  EXPECT_THAT(RefusalOf(kFormat, Least("--qk-l2-norm"), kRanks),
              HasSubstr("norms of queries and keys without weights"));
}

TEST(ConfigMegatron, WhatDoesNothingIsPassedOver) {
  for (const char* option : {"--num-experts 0", "--no-bias-gelu-fusion --swiglu", "--no-masked-softmax-fusion",
                             "--empty-unused-memory-level 0", "--lr 1e-4", "--sequence-parallel"}) {
    EXPECT_TRUE(ReadForeign(kFormat, Least(option), kRanks).ok()) << option;
  }
  for (const char* none : {"--clip-grad -1", "--clip-grad 0"}) {
    EXPECT_EQ(KeyOf(none, "optimizer_step.clip_norm"), "(nothing)");
  }
  const Settings settings = MustRead(kFormat,
                                     Least("--position-embedding-type learned_absolute "
                                           "--use-rotary-position-embeddings --sequence-parallel"),
                                     kRanks);
  EXPECT_EQ(TextOf(settings, "network.rope"), "true");  // the older option counts
  EXPECT_EQ(TextOf(settings, "layout.sp"), "false");    // of one tensor-parallel rank
}

TEST(ConfigMegatron, Optimizers) {
  const auto optimizer = [](const std::string& more) { return KeyOf(more, "optimizer"); };
  EXPECT_EQ(optimizer("--optimizer sgd"), "sgd-momentum");  // 0.9
  EXPECT_EQ(optimizer("--optimizer sgd --sgd-momentum 0"), "sgd");
}

/// What follows from something follows from what the command line says of it.
TEST(ConfigMegatron, TheCommandLineComesFirst) {
  const Settings half = MustRead(kFormat, Least("--bf16"), {"layout.dp=8", "precision.params=fp16"});
  EXPECT_EQ(TextOf(half, "precision.gradients"), "fp16");
  const Settings narrow =
      MustRead(kFormat, Least("--bf16 --use-distributed-optimizer"), {"layout.dp=8", "precision.accumulate=bf16"});
  EXPECT_EQ(TextOf(narrow, "precision.reduce"), "bf16");
  const Settings deep =
      MustRead(kFormat, Least("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2"),
               {"layout.dp=8", "network.layers=16", "accumulation_steps=4"});
  EXPECT_EQ(TextOf(deep, "layout.vpp"), "4");  // 16 / 2 / 2
  EXPECT_EQ(TextOf(deep, "network.hidden"), "512");
  const Settings other =
      MustRead(kFormat, Least("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 4"),
               {"layout.dp=8", "network=llama-3-8b", "accumulation_steps=4"});
  EXPECT_EQ(TextOf(other, "layout.vpp"), "4");  // 32 / 2 / 4
}

/// As Megatron-LM's functional tests keep them; what is false there is not passed.
TEST(ConfigMegatron, ATestCasesArgumentsAreTheSame) {
  const std::string yaml =
      "ENV_VARS:\n  NCCL_ALGO: Ring\nMODEL_ARGS:\n  --num-layers: 12\n  --hidden-size: 512\n  --num-attention-heads: "
      "8\n"
      "  --seq-length: 1024\n  --max-position-embeddings: 1024\n  --micro-batch-size: 4\n  --bf16: true\n"
      "  --sequence-parallel: false\n  --save: ${CHECKPOINT_SAVE_PATH}\nTEST_TYPE: regular\n";
  const Settings settings = MustRead(kFormat, yaml, kRanks);
  const Settings same = MustRead(kFormat, Least("--bf16"), kRanks);
  ASSERT_EQ(settings.size(), same.size());
  for (const auto& [key, value] : same) {
    EXPECT_EQ(TextOf(settings, key), value.text) << key;
  }
  EXPECT_EQ(settings.at("micro_batch_size").source, "job.args:9");
}

}  // namespace
}  // namespace tidemark::config_megatron_test
