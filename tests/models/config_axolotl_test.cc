// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/models/foreign_config.h"
#include "tests/models/sample.h"

namespace tidemark::config_axolotl_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kFormat = "axolotl";
constexpr const char* kSample = "axolotl-full.yaml";

/// No such file says how many ranks there are.
const std::vector<std::string> kSet = {"layout.dp=8"};

std::string SampleWith(const std::string& line, const std::string& instead) {
  return SampleText(kSample, line, instead);
}

/// core/builders/base.py hands these on to TrainingArguments; "auto" is bf16 on all GPUs from Ampere on.
TEST(ConfigAxolotl, ReadsFullTrainingUnderFsdp2) {
  const Settings settings = MustRead(kFormat, SampleText(kSample), kSet);
  EXPECT_EQ(TextOf(settings, "network"), "mistral-7b");
  EXPECT_EQ(TextOf(settings, "sequence_length"), "8192");
  EXPECT_EQ(TextOf(settings, "micro_batch_size"), "1");
  EXPECT_EQ(TextOf(settings, "accumulation_steps"), "4");
  EXPECT_EQ(TextOf(settings, "strategy"), "fsdp2-defer");
  EXPECT_EQ(TextOf(settings, "shard.reshard_after_forward"), "true");
  EXPECT_EQ(TextOf(settings, "recompute.policy"), "full");
  EXPECT_EQ(TextOf(settings, "optimizer_step.kernel"), "fused");
  EXPECT_EQ(TextOf(settings, "optimizer_step.clip_norm"), "1.0");  // the Trainer's default
  EXPECT_EQ(TextOf(settings, "precision.params"), "bf16");
  EXPECT_EQ(TextOf(settings, "precision.master"), "fp32");
  EXPECT_EQ(settings.at("sequence_length").source, "job.json:10");
}

/// schemas/training.py: one sample, one step, a fused AdamW; schemas/validation.py: FSDP's version is 1.
TEST(ConfigAxolotl, WhatIsAbsentHasAxolotlsDefaults) {
  const std::string text = "base_model: gpt2\nsequence_len: 1024\nbf16: true\nfsdp: [full_shard, auto_wrap]\n";
  const Settings settings = MustRead(kFormat, text, kSet);
  EXPECT_EQ(TextOf(settings, "micro_batch_size"), "1");
  EXPECT_EQ(settings.at("micro_batch_size").source, "axolotl's default");
  EXPECT_EQ(TextOf(settings, "accumulation_steps"), "1");
  EXPECT_EQ(TextOf(settings, "optimizer_step.kernel"), "fused");
  EXPECT_EQ(TextOf(settings, "recompute.policy"), "none");
  EXPECT_EQ(TextOf(settings, "strategy"), "fsdp1-no-sync");
}

/// Empty keys are absent ones in axolotl, and no null of TrainingArguments.
TEST(ConfigAxolotl, EmptyKeysHaveAxolotlsDefaults) {
  const Settings settings = MustRead(
      kFormat,
      SampleWith("micro_batch_size: 1\n", "micro_batch_size:\nmax_grad_norm:\ngradient_checkpointing_kwargs:\n"), kSet);
  EXPECT_EQ(TextOf(settings, "micro_batch_size"), "1");
  EXPECT_EQ(TextOf(settings, "optimizer_step.clip_norm"), "1.0");
}

/// utils/config/__init__.py, resolve_dtype: bf16 is "auto" by itself, which gives way to fp16.
TEST(ConfigAxolotl, ComputesInBf16ByItself) {
  const Settings settings = MustRead(kFormat, SampleWith("bf16: auto\n", ""), kSet);
  EXPECT_EQ(TextOf(settings, "precision.params"), "bf16");
  EXPECT_EQ(TextOf(settings, "precision.master"), "fp32");
  EXPECT_EQ(settings.at("precision.params").source, "axolotl's default");
  for (const char* line : {"fp16: true\n", "fp16: true\nbf16: auto\n"}) {
    EXPECT_EQ(TextOf(MustRead(kFormat, SampleWith("bf16: auto\n", line), kSet), "precision.params"), "fp16") << line;
  }
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("bf16: auto\n", "bf16: false\n"), kSet),
              HasSubstr("--set precision.params=bf16"));
}

/// integrations/liger/args.py: no kernel is on by itself, and none without the plugin.
TEST(ConfigAxolotl, EachOfLigersKernelsIsAskedFor) {
  const Settings all = MustRead(kFormat, SampleText(kSample), kSet);
  EXPECT_EQ(TextOf(all, "loss"), "fused");
  EXPECT_EQ(TextOf(all, "buffers.fused_glu"), "true");
  EXPECT_EQ(TextOf(all, "buffers.fused_rope"), "true");
  EXPECT_EQ(TextOf(all, "network.norm_kernel"), "fused");
  const Settings some = MustRead(kFormat, SampleWith("liger_rms_norm: true\n", ""), kSet);
  EXPECT_EQ(TextOf(some, "network.norm_kernel"), "eager");
  EXPECT_EQ(TextOf(some, "loss"), "fused");
  const std::string cut = "cut_cross_entropy.CutCrossEntropyPlugin";
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("liger.LigerPlugin", cut), kSet), HasSubstr("another loss"));
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("liger.LigerPlugin", "spectrum.SpectrumPlugin"), kSet),
              HasSubstr("what it does to memory"));
  const Settings none = MustRead(kFormat, SampleWith("liger.LigerPlugin", cut + "\ncut_cross_entropy: false"), kSet);
  EXPECT_EQ(TextOf(none, "loss"), "(nothing)");
  EXPECT_EQ(TextOf(none, "buffers.fused_glu"), "false");
}

/// loaders/model.py casts norms and embeddings up where there is no FSDP; DeepSpeed's engine casts all down again.
TEST(ConfigAxolotl, DdpsMixtureOfDtypesIsAskedAbout) {
  const std::string text = "base_model: gpt2\nsequence_len: 1024\nmicro_batch_size: 2\nbf16: auto\n";
  EXPECT_THAT(RefusalOf(kFormat, text, kSet), HasSubstr("norms and embeddings"));
  EXPECT_THAT(RefusalOf(kFormat, text, kSet), HasSubstr("--set precision.params=bf16"));
  const Settings settings = MustRead(
      kFormat, text + "deepspeed: {zero_optimization: {stage: 1}, bf16: {enabled: true}, gradient_clipping: auto}\n",
      kSet);
  EXPECT_EQ(TextOf(settings, "strategy"), "deepspeed-zero1");
  EXPECT_EQ(TextOf(settings, "micro_batch_size"), "2");
  EXPECT_EQ(TextOf(settings, "precision.params"), "bf16");
}

TEST(ConfigAxolotl, ShardsInHostMemoryArePinned) {
  const std::string shards = "offload_params: true\n  cpu_offload_pin_memory: ";
  EXPECT_EQ(
      TextOf(MustRead(kFormat, SampleWith("offload_params: false", shards + "true"), kSet), "optimizer_step.offload"),
      "true");
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("offload_params: false", shards + "false"), kSet),
              HasSubstr("fsdp_config.cpu_offload_pin_memory: 'false' is not supported"));
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("offload_params: false", shards + "maybe"), kSet),
              HasSubstr("fsdp_config.cpu_offload_pin_memory: expected true or false, found 'maybe'"));
}

TEST(ConfigAxolotl, OtherKindsOfTrainingAreRefusedByName) {
  const std::pair<const char*, const char*> lines[] = {
      {"adapter: lora", "LoRA"},
      {"load_in_8bit: true", "quantized weights"},
      {"rl: dpo", "preferences"},
      {"tensor_parallel_size: 2", "ranks by axis"},
      {"fp8: true", "products in fp8"},
      {"cut_cross_entropy: true", "another loss"},
      {"relora: true", "LoRA"},
      {"unfrozen_parameters: [lm_head]", "network.trainable"},
      {"torch_compile: true", "fuses"},
      {"activation_offloading: true", "host memory"},
      {"batch_size: 64", "a batch of all ranks"},
      {"overrides_of_model_config: {num_hidden_layers: 4}", "--set network.layers"}};
  for (const auto& [line, reason] : lines) {
    EXPECT_THAT(RefusalOf(kFormat, SampleText(kSample) + line + "\n", kSet), HasSubstr(reason)) << line;
  }
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("adamw_torch_fused", "paged_adamw_8bit"), kSet), HasSubstr("of 8 bits"));
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("bf16: auto", "bf16: full"), kSet), HasSubstr("'full' is not supported"));
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("micro_batch_size", "micro_btach_size"), kSet),
              HasSubstr("did you mean micro_batch_size?"));
  for (const char* elsewhere : {"offload", "unsloth", "offload_disk"}) {
    const std::string line = std::string("gradient_checkpointing: ") + elsewhere;
    EXPECT_THAT(RefusalOf(kFormat, SampleWith("gradient_checkpointing: true", line), kSet),
                HasSubstr("activations in host memory"))
        << elsewhere;
  }
}

/// One key of a network names no network: the file's is read, kernels of its norms included.
TEST(ConfigAxolotl, LayersOfTheCommandLineAreOfTheFilesNetwork) {
  const Settings settings = MustRead(kFormat, SampleText(kSample), {"layout.dp=8", "network.layers=16"});
  EXPECT_EQ(TextOf(settings, "network"), "mistral-7b");
  EXPECT_EQ(TextOf(settings, "network.norm_kernel"), "fused");
}

TEST(ConfigAxolotl, WindowsCountWhereTheKernelLeavesOutWhatTheyHide) {
  EXPECT_EQ(TextOf(MustRead(kFormat, SampleText(kSample), kSet), "network.sliding_window"), "(nothing)");
  const std::string written_otherwise = SampleWith("flash_attention: true", "flash_attention: True");
  EXPECT_EQ(TextOf(MustRead(kFormat, written_otherwise, kSet), "network.sliding_window"), "(nothing)");
  const std::string by_itself = SampleWith("flash_attention: true", "flash_attention: false");
  EXPECT_EQ(TextOf(MustRead(kFormat, by_itself, kSet), "network.sliding_window"), "0");
  EXPECT_EQ(TextOf(MustRead(kFormat, by_itself + "flex_attention: true\n", kSet), "network.sliding_window"),
            "(nothing)");
}

TEST(ConfigAxolotl, SaysAllThatIsMissingAtOnce) {
  EXPECT_THAT(
      RefusalOf(kFormat,
                "base_model: google/gemma-2-9b\nmicro_batch_size: 1\nfsdp: [full_shard, auto_wrap]\nbf16: true\n"),
      HasSubstr("--set network=config.json --set sequence_length=4096 --set layout.dp=8"));
}

}  // namespace
}  // namespace tidemark::config_axolotl_test
