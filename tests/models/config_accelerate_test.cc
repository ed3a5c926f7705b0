// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/models/foreign_config.h"
#include "tests/models/sample.h"

namespace tidemark::config_accelerate_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kFormat = "accelerate";

/// What the script says that the file launches.
const std::vector<std::string> kSet = {"network=llama-3-8b", "sequence_length=4096", "micro_batch_size=1",
                                       "accumulation_steps=4"};

constexpr const char* kSample = "accelerate-fsdp2.yaml";

std::string Sample() { return SampleText(kSample); }

std::string SampleWith(const std::string& line, const std::string& instead) {
  return SampleText(kSample, line, instead);
}

/// The same under FSDP1, as `accelerate config` wrote it for years; `lines` of fsdp_config besides.
std::string Fsdp1(const std::string& lines) {
  return "distributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 2\nnum_processes: 16\nfsdp_config:\n"
         "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n" +
         lines;
}

/// fsdp2_prepare_model: fp32 shards, and one dtype for computing and reducing; no_sync: set_requires_gradient_sync.
TEST(ConfigAccelerate, ReadsFsdp2) {
  const Settings settings = MustRead(kFormat, Sample(), kSet);
  EXPECT_EQ(TextOf(settings, "strategy"), "fsdp2-defer");
  EXPECT_EQ(TextOf(settings, "layout.dp"), "8");
  EXPECT_EQ(TextOf(settings, "recompute.policy"), "full");
  EXPECT_EQ(TextOf(settings, "shard.reshard_after_forward"), "true");
  for (const char* key : {"precision.params", "precision.gradients", "precision.reduce", "precision.accumulate"}) {
    EXPECT_EQ(TextOf(settings, key), "bf16") << key;
  }
  EXPECT_EQ(TextOf(settings, "precision.master"), "fp32");
  EXPECT_EQ(settings.at("layout.dp").source, "job.json:18");
}

TEST(ConfigAccelerate, ReadsFsdp1) {
  const Settings plain = MustRead(kFormat, Fsdp1(""), kSet);
  EXPECT_EQ(TextOf(plain, "strategy"), "fsdp1-no-sync");
  EXPECT_EQ(TextOf(plain, "shard.backward_prefetch"), "none");  // accelerate's default, not PyTorch's
  EXPECT_EQ(TextOf(plain, "shard.reshard_after_forward"), "(nothing)");
  const Settings grad_op = MustRead(
      kFormat, Fsdp1("  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_backward_prefetch: BACKWARD_PRE\n"), kSet);
  EXPECT_EQ(TextOf(grad_op, "shard.reshard_after_forward"), "false");
  EXPECT_EQ(TextOf(grad_op, "shard.backward_prefetch"), "pre");
  // Numbers count from 1: 4 is HYBRID_SHARD, which shards within each machine.
  EXPECT_EQ(TextOf(MustRead(kFormat, Fsdp1("  fsdp_sharding_strategy: 4\n"), kSet), "shard.replicas"), "2");
  EXPECT_THAT(RefusalOf(kFormat, Fsdp1("  fsdp_sharding_strategy: NO_SHARD\n"), kSet), HasSubstr("strategy=ddp-last"));
  EXPECT_THAT(RefusalOf(kFormat, Fsdp1("  fsdp_sharding_strategy: FULL\n"), kSet), HasSubstr("FULL_SHARD"));
}

/// CPUOffloadPolicy and CPUOffload (FullyShardedDataParallelPlugin.set_cpu_offload).
TEST(ConfigAccelerate, ShardsInHostMemoryAreFsdp2sAlone) {
  const auto offloads = [](const std::string& text) {
    return TextOf(MustRead(kFormat, text, kSet), "optimizer_step.offload");
  };
  EXPECT_EQ(offloads(Sample()), "(nothing)");
  EXPECT_EQ(offloads(SampleWith("fsdp_offload_params: false", "fsdp_offload_params: true")), "true");
  const std::string first = RefusalOf(kFormat, Fsdp1("  fsdp_offload_params: true\n"), kSet);
  EXPECT_THAT(first, HasSubstr("fsdp_config.fsdp_offload_params: 'true' is not supported by this version with "
                               "fsdp_version 1"));
  EXPECT_THAT(first, HasSubstr("set the version to 2"));
}

TEST(ConfigAccelerate, DdpTrainsInWhatWasLoaded) {
  const std::string text = "distributed_type: MULTI_GPU\nmixed_precision: 'no'\nnum_processes: 4\n";
  EXPECT_THAT(RefusalOf(kFormat, text, kSet), HasSubstr("--set precision.params=bf16"));
  std::vector<std::string> set = kSet;
  set.emplace_back("precision.params=bf16");
  const Settings settings = MustRead(kFormat, text, set);
  EXPECT_EQ(TextOf(settings, "strategy"), "ddp-last");
  EXPECT_EQ(TextOf(settings, "precision.reduce"), "bf16");
  EXPECT_EQ(TextOf(settings, "precision.master"), "none");
}

/// DeepSpeedPlugin makes DeepSpeed's config of these fields.
TEST(ConfigAccelerate, ReadsDeepSpeedsFields) {
  const std::string text =
      "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 4\ndeepspeed_config:\n  zero_stage: 3\n"
      "  gradient_accumulation_steps: 2\n  offload_optimizer_device: cpu\n  offload_param_device: none\n"
      "  zero3_init_flag: true\n";
  const std::vector<std::string> set = {"network=llama-3-8b", "sequence_length=4096", "micro_batch_size=1"};
  const Settings settings = MustRead(kFormat, text, set);
  EXPECT_EQ(TextOf(settings, "strategy"), "deepspeed-zero3");
  EXPECT_EQ(TextOf(settings, "layout.dp"), "4");
  EXPECT_EQ(TextOf(settings, "accumulation_steps"), "2");
  EXPECT_EQ(TextOf(settings, "precision.params"), "bf16");
  EXPECT_EQ(TextOf(settings, "optimizer_step.offload"), "true");
  EXPECT_THAT(RefusalOf(kFormat,
                        "distributed_type: DEEPSPEED\nnum_processes: 4\ndeepspeed_config:\n"
                        "  deepspeed_config_file: ds.json\n",
                        set),
              HasSubstr("tidemark predict ds.json"));
}

// launch.py, simple_launcher: one process, whatever num_processes says.
TEST(ConfigAccelerate, NoDistributionIsOneRank) {
  std::vector<std::string> set = kSet;
  set.emplace_back("precision.params=bf16");
  const std::string text = "distributed_type: 'NO'\nmixed_precision: 'no'\nnum_processes: 8\n";
  EXPECT_EQ(TextOf(MustRead(kFormat, text, set), "layout.dp"), "1");
}

TEST(ConfigAccelerate, WhatDdpMixesIsRefused) {
  const auto refusal = [](const std::string& mixed, const std::string& loaded) {
    std::vector<std::string> set = kSet;
    set.push_back("precision.params=" + loaded);
    return RefusalOf(kFormat, "distributed_type: MULTI_GPU\nnum_processes: 4\nmixed_precision: " + mixed + "\n", set);
  };
  EXPECT_THAT(refusal("fp8", "bf16"), HasSubstr("'fp8' is not supported"));
  EXPECT_THAT(refusal("bf16", "fp32"), HasSubstr("autocast"));
}

TEST(ConfigAccelerate, SizesOfAMeshMultiply) {
  const std::string mesh =
      "parallelism_config:\n  parallelism_config_dp_shard_size: 2\n  parallelism_config_tp_size: 2\n";
  EXPECT_THAT(RefusalOf(kFormat, Sample() + mesh, kSet),
              HasSubstr("8 is not the product of parallelism_config's sizes"));
  EXPECT_THAT(RefusalOf(kFormat, Fsdp1("") + "parallelism_config:\n  parallelism_config_dp_shard_size: 16\n", kSet),
              HasSubstr("fsdp_version: 2 only"));
}

// What is null says nothing, also of a field that nobody knows.
TEST(ConfigAccelerate, NullFieldsPass) {
  MustRead(kFormat, SampleWith("  fsdp_version: 2\n", "  fsdp_version: 2\n  fsdp_ignored_modules: null\n"), kSet);
}

TEST(ConfigAccelerate, CompiledModelsAreRefused) {
  EXPECT_THAT(RefusalOf(kFormat, Sample() + "dynamo_config:\n  dynamo_backend: INDUCTOR\n", kSet),
              HasSubstr("torch.compile"));
  MustRead(kFormat, Sample() + "dynamo_config:\n  dynamo_backend: 'NO'\n", kSet);
}

TEST(ConfigAccelerate, RanksByAxis) {
  const std::string mesh =
      "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n  parallelism_config_dp_shard_size: 4\n"
      "  parallelism_config_tp_size: 2\n";
  const Settings settings = MustRead(kFormat, SampleWith("num_processes: 8", "num_processes: 16") + mesh, kSet);
  EXPECT_EQ(TextOf(settings, "layout.dp"), "8");
  EXPECT_EQ(TextOf(settings, "layout.tp"), "2");
  EXPECT_EQ(TextOf(settings, "shard.replicas"), "2");
}

TEST(ConfigAccelerate, SaysAllThatIsMissingAtOnce) {
  const std::string refusal = RefusalOf(kFormat, Sample());
  EXPECT_THAT(refusal, HasSubstr("--set network=llama-3-8b --set sequence_length=4096 --set micro_batch_size=1 --set "
                                 "accumulation_steps=4"));
  EXPECT_THAT(refusal, Not(HasSubstr("layout.dp")));
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("num_processes: 8", "num_processes: -1")), HasSubstr("--set layout.dp=8"));
}

TEST(ConfigAccelerate, WhatIsNotModelledIsRefusedByName) {
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("TRANSFORMER_BASED_WRAP", "SIZE_BASED_WRAP"), kSet),
              HasSubstr("FSDP units that are no layers"));
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n", ""), kSet),
              HasSubstr("the whole model is one unit"));
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("mixed_precision: bf16", "mixed_precision: fp8"), kSet),
              HasSubstr("'fp8' is not supported by this version"));
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("fsdp_version: 2", "fsdp_versoin: 2"), kSet),
              HasSubstr("did you mean fsdp_config.fsdp_version?"));
}

/// All types that are read are among those to choose from.
TEST(ConfigAccelerate, AnUnknownTypeIsShownTheKnownOnes) {
  const std::string refusal = RefusalOf(kFormat, "distributed_type: DEEPSPED\nmixed_precision: bf16\n", kSet);
  for (const char* type : {"FSDP", "MULTI_GPU", "NO", "DEEPSPEED"}) {
    EXPECT_THAT(refusal, HasSubstr(type));
  }
  EXPECT_THAT(RefusalOf(kFormat, "distributed_type: MEGATRON_LM\nmixed_precision: bf16\n", kSet),
              HasSubstr("not supported by this version"));
}

}  // namespace
}  // namespace tidemark::config_accelerate_test
