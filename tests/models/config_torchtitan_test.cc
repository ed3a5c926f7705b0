// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "base/text.h"
#include "models/configs/toml.h"
#include "models/configs/torchtitan_pipeline.h"
#include "tests/models/foreign_config.h"
#include "tests/models/sample.h"

namespace tidemark::config_torchtitan_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr const char* kFormat = "torchtitan";

constexpr const char* kSample = "torchtitan-llama3-8b.toml";

std::string Sample() { return SampleText(kSample); }

std::string SampleWith(const std::string& line, const std::string& instead) {
  return SampleText(kSample, line, instead);
}

TEST(ConfigTorchtitan, ReadsTheSample) {
  const Settings settings = MustRead(kFormat, Sample());
  EXPECT_EQ(TextOf(settings, "network"), "llama-3-8b");
  EXPECT_EQ(TextOf(settings, "strategy"), "fsdp2-scatter-each");
  EXPECT_EQ(TextOf(settings, "layout.dp"), "8");
  EXPECT_EQ(TextOf(settings, "micro_batch_size"), "1");
  EXPECT_EQ(TextOf(settings, "accumulation_steps"), "4");  // 32 / (1 * 8)
  EXPECT_EQ(TextOf(settings, "sequence_length"), "8192");
  EXPECT_EQ(TextOf(settings, "loss_scale"), "global-tokens");
  EXPECT_EQ(TextOf(settings, "optimizer_step.clip_norm"), "1");
  EXPECT_EQ(settings.at("accumulation_steps").source, "job.toml:20");
  EXPECT_EQ(settings.at("machine").source, "assumed");
}

/// torchtitan, models/qwen3/__init__.py.
TEST(ConfigTorchtitan, KnowsTheDenseFlavorsOfQwen3) {
  for (const char* flavor : {"0.6B", "1.7B", "4B", "8B", "14B", "32B"}) {
    const std::string text =
        fmt::format("[model]\nname = \"qwen3\"\nflavor = \"{}\"\n[training]\n[parallelism]\n", flavor);
    EXPECT_EQ(TextOf(MustRead(kFormat, text, {"layout.dp=2"}), "network"), "qwen3-" + LowerCase(flavor));
  }
  EXPECT_THAT(RefusalOf(kFormat, "[model]\nname = \"qwen3\"\nflavor = \"30B-A3B\"\n[training]\n[parallelism]\n",
                        {"layout.dp=2"}),
              HasSubstr("torchtitan's qwen3 30B-A3B is code"));
}

/// job_config.py: what an empty file means.
TEST(ConfigTorchtitan, DefaultsAreTorchtitans) {
  const Settings settings = MustRead(kFormat, "[training]\n[parallelism]\n", {"layout.dp=2"});
  EXPECT_EQ(TextOf(settings, "network.layers"), "6");  // debugmodel
  EXPECT_EQ(TextOf(settings, "network.ffn"), "768");   // 2/3 of 4 * 256, up to a multiple of 256
  EXPECT_EQ(TextOf(settings, "micro_batch_size"), "8");
  EXPECT_EQ(TextOf(settings, "accumulation_steps"), "1");
  EXPECT_EQ(TextOf(settings, "sequence_length"), "2048");
  EXPECT_EQ(TextOf(settings, "recompute.policy"), "every_n");
  EXPECT_EQ(TextOf(settings, "recompute.every"), "2");
  EXPECT_EQ(TextOf(settings, "precision.params"), "bf16");
  EXPECT_EQ(TextOf(settings, "precision.reduce"), "fp32");
  EXPECT_EQ(TextOf(settings, "precision.master"), "fp32");
  EXPECT_EQ(TextOf(settings, "optimizer_step.kernel"), "fused");
  EXPECT_EQ(TextOf(settings, "buffers.fused_glu"), "false");  // nothing is compiled
}

TEST(ConfigTorchtitan, AllRanksThereAreMustBeCounted) {
  const std::string text = SampleWith("data_parallel_shard_degree = 8", "data_parallel_shard_degree = -1");
  EXPECT_THAT(RefusalOf(kFormat, text), HasSubstr("takes all ranks there are"));
  EXPECT_EQ(TextOf(MustRead(kFormat, text, {"layout.dp=16"}), "accumulation_steps"), "2");
  EXPECT_THAT(RefusalOf(kFormat, text, {"layout.dp=64"}), HasSubstr("must be a multiple of local batch size times"));
}

TEST(ConfigTorchtitan, ReplicasAreOfShards) {
  const Settings settings =
      MustRead(kFormat, SampleWith("data_parallel_replicate_degree = 1\ndata_parallel_shard_degree = 8",
                                   "data_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 4"));
  EXPECT_EQ(TextOf(settings, "shard.replicas"), "2");
  EXPECT_EQ(TextOf(settings, "layout.dp"), "8");
}

TEST(ConfigTorchtitan, WithoutShardsItTrainsUnderAutocastWhichIsNotModelled) {
  const std::string text = SampleWith("data_parallel_shard_degree = 8", "data_parallel_shard_degree = 1");
  EXPECT_THAT(RefusalOf(kFormat, text), HasSubstr("autocast"));
  EXPECT_TRUE(ReadForeign(kFormat, text, {"strategy=ddp-every"}).ok());
}

TEST(ConfigTorchtitan, Resharding) {
  const auto with = [](const std::string& policy) {
    return MustRead(kFormat, SampleWith("tensor_parallel_degree = 1",
                                        "tensor_parallel_degree = 1\nfsdp_reshard_after_forward = \"" + policy + "\""));
  };
  EXPECT_EQ(TextOf(with("default"), "shard.reshard_after_forward"), "(nothing)");
  EXPECT_EQ(TextOf(with("never"), "shard.reshard_after_forward"), "false");
  EXPECT_EQ(TextOf(with("always"), "shard.reshard_last_unit"), "true");
}

TEST(ConfigTorchtitan, Recomputation) {
  const auto with = [](const std::string& lines) { return MustRead(kFormat, SampleWith("mode = \"none\"", lines)); };
  EXPECT_EQ(TextOf(with("mode = \"full\""), "recompute.policy"), "full");
  EXPECT_EQ(TextOf(with("mode = \"none\""), "recompute.policy"), "none");
  const Settings third = with("mode = \"selective\"\nselective_ac_option = \"3\"");
  EXPECT_EQ(TextOf(third, "recompute.policy"), "every_n");
  EXPECT_EQ(TextOf(third, "recompute.every"), "3");
  EXPECT_EQ(TextOf(with("mode = \"selective\"\nselective_ac_option = \"1\""), "recompute.policy"), "full");
  const std::string by_operation = SampleWith("mode = \"none\"", "mode = \"selective\"\nselective_ac_option = \"op\"");
  EXPECT_EQ(TextOf(MustRead(kFormat, by_operation), "recompute.policy"), "per_op");
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("mode = \"none\"", "mode = \"memory_budget\"")),
              HasSubstr("'memory_budget' is not supported by this version"));
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("mode = \"none\"",
                                            "mode = \"selective\"\nselective_ac_option = \"op\"\n"
                                            "per_op_sac_force_recompute_mm_shapes_by_fqns = [\"wq\"]")),
              HasSubstr("by their shapes"));
}

/// The example in generate_llm_fqn_per_model_part's own words: two stages, three layers, embedding and head as two
/// layers each; and 32 layers on four stages, by hand: 34 = 9 + 9 + 8 + 8.
TEST(ConfigTorchtitan, StagesCountEmbeddingAndHead) {
  EXPECT_THAT(*TorchtitanStages(2, 3, 2, 2), ElementsAre(2, 1));
  EXPECT_THAT(*TorchtitanStages(4, 32, 1, 1), ElementsAre(8, 9, 8, 7));
  EXPECT_FALSE(TorchtitanStages(8, 4, 1, 1).ok());
  EXPECT_FALSE(TorchtitanStages(4, 2, 1, 1).ok());  // the first and the last would hold no layer
}

TEST(ConfigTorchtitan, APipelineCutsLocalBatches) {
  const std::string lines = "tensor_parallel_degree = 1\npipeline_parallel_degree = 4\n";
  std::string text = SampleWith("tensor_parallel_degree = 1\n", lines);
  const std::string batch = "local_batch_size = 1\nglobal_batch_size = 32";
  text.replace(text.find(batch), batch.size(), "local_batch_size = 8");
  const Settings settings = MustRead(kFormat, text);
  EXPECT_EQ(TextOf(settings, "strategy"), "fsdp2-keep-all");
  EXPECT_EQ(TextOf(settings, "micro_batch_size"), "1");
  EXPECT_EQ(TextOf(settings, "accumulation_steps"), "8");
  EXPECT_EQ(TextOf(settings, "schedule"), "1f1b");
  EXPECT_EQ(settings.at("layout.layers_per_stage").items.size(), 4);
  const std::string degree = "pipeline_parallel_degree = 4\n";
  std::string interleaved = text;
  interleaved.replace(text.find(degree), degree.size(), degree + "pipeline_parallel_schedule = \"Interleaved1F1B\"\n");
  EXPECT_EQ(TextOf(MustRead(kFormat, interleaved), "layout.vpp"), "2");  // unless layers are given
  std::string uneven = text;
  uneven.replace(text.find(degree), degree.size(), degree + "pipeline_parallel_layers_per_stage = 5\n");
  EXPECT_THAT(RefusalOf(kFormat, uneven), HasSubstr("7 stages of 34 layers"));
  std::string several = text;
  several.replace(text.find("local_batch_size = 8"), 20, "local_batch_size = 8\nglobal_batch_size = 128");
  EXPECT_THAT(RefusalOf(kFormat, several), HasSubstr("--set accumulation_steps=8"));
}

// Sections and fields of other versions: none leaves what it says at its default.
TEST(ConfigTorchtitan, AHintSaysHowAnEmptyValueIsWritten) {
  EXPECT_THAT(
      RefusalOf(kFormat, SampleWith("[parallelism]", "[parallelism]\npipeline_parallel_schedule_csv = \"own.csv\"")),
      HasSubstr("set it to \"\" to price the job without"));
}

TEST(ConfigTorchtitan, FieldsOfOtherVersionsAreRefused) {
  EXPECT_THAT(
      RefusalOf(kFormat, SampleWith("local_batch_size = 1", "batch_size = 1")),
      HasSubstr("training.batch_size: is not known to this version, and may move memory or time\nhint: did you mean "
                "training.local_batch_size?"));
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("seq_len = 8192", "seq_len = 8192\ntensor_parallel_degree = 8")),
              HasSubstr("did you mean parallelism.tensor_parallel_degree?"));
  EXPECT_THAT(RefusalOf(kFormat, Sample() + "\n[parallel]\ntensor_parallel_degree = 8\n"),
              HasSubstr("parallel: is no section that this version knows"));
  MustRead(kFormat, Sample() + "\n[float8]\nfilter_fqns = [\"output\"]\n");  // without a converter it does nothing
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("mode = \"none\"", "mode = \"full\"\nearly_stop = true")),
              HasSubstr("activation_checkpoint.early_stop"));
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("seq_len = 8192", "seq_len = 8192\nmixed_precision_reduce = \"bfloat16\"")),
              HasSubstr("training.mixed_precision_reduce"));
}

TEST(ConfigTorchtitan, ACompiledLossIsNoCompiledModel) {
  const Settings loss = MustRead(kFormat, SampleWith("enable = true", "enable = true\ncomponents = [\"loss\"]"));
  EXPECT_EQ(TextOf(loss, "buffers.fused_glu"), "false");
  const Settings model = MustRead(kFormat, SampleWith("enable = true", "enable = true\ncomponents = [\"model\"]"));
  EXPECT_EQ(TextOf(model, "buffers.fused_glu"), "true");
}

TEST(ConfigTorchtitan, WeightsMayBeStoredInBf16) {
  const Settings settings = MustRead(kFormat, SampleWith("seq_len = 8192", "seq_len = 8192\ndtype = \"bfloat16\""));
  EXPECT_EQ(TextOf(settings, "precision.master"), "none");
  EXPECT_EQ(TextOf(settings, "precision.optimizer"), "bf16");
  EXPECT_EQ(TextOf(settings, "precision.accumulate"), "fp32");  // as it is reduced
}

// One key of the network is no other network.
TEST(ConfigTorchtitan, TheFlavorStaysBehindAChangeToIt) {
  EXPECT_EQ(TextOf(MustRead(kFormat, Sample(), {"network.attention_kernel=eager"}), "network"), "llama-3-8b");
}

TEST(ConfigTorchtitan, WhoSaysHowAPipelineIsMadeIsNotContradicted) {
  const std::string text =
      SampleWith("tensor_parallel_degree = 1", "tensor_parallel_degree = 1\npipeline_parallel_degree = 4");
  const std::vector<std::string> set = {"schedule=gpipe", "accumulation_steps=4"};
  EXPECT_EQ(TextOf(MustRead(kFormat, text, set), "layout.layers_per_stage"), "(nothing)");
}

TEST(ConfigTorchtitan, AnOptimizerInTheBackwardPassDoesNotClip) {
  std::string text = SampleWith("lr = 3e-4", "lr = 3e-4\nearly_step_in_backward = true");
  text.replace(text.find("global_batch_size = 32"), 22, "");  // one microbatch
  const Settings settings = MustRead(kFormat, text);
  EXPECT_EQ(TextOf(settings, "optimizer_step.in_backward"), "true");
  EXPECT_EQ(TextOf(settings, "optimizer_step.clip_norm"), "(nothing)");
}

TEST(ConfigTorchtitan, ShardsMayLieInHostMemory) {
  EXPECT_EQ(TextOf(MustRead(kFormat, SampleText(kSample)), "optimizer_step.offload"), "(nothing)");
  const std::string text = SampleWith("seq_len = 8192", "seq_len = 8192\nenable_cpu_offload = true");
  EXPECT_EQ(TextOf(MustRead(kFormat, text), "optimizer_step.offload"), "true");
}

TEST(ConfigTorchtitan, WhatIsNotModelledIsRefusedByName) {
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("flavor = \"8B\"", "flavor = \"8B\"\nconverters = [\"float8\"]")),
              HasSubstr("'float8' is not supported"));
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("name = \"llama3\"", "name = \"deepseek_v3\"")),
              HasSubstr("name the network: --set network=NAME"));
  EXPECT_TRUE(
      ReadForeign(kFormat, SampleWith("name = \"llama3\"", "name = \"deepseek_v3\""), {"network=qwen2-7b"}).ok());
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("seq_len = 8192", "sec_len = 8192")),
              HasSubstr("did you mean training.seq_len?"));
}

/// Line numbers are the file's, whatever kind a value is of.
TEST(ParseToml, KeepsKindsAndLines) {
  const Result<ConfigValue> root =
      ParseToml("[a]\nb = 1_000\nc = [\"x\", \"y\"]\n[a.d]\ne = 5e8\nf = true\n", "runs/x.toml");
  ASSERT_TRUE(root.ok());
  EXPECT_EQ(root->FindPath("a.b")->text, "1000");
  EXPECT_EQ(root->FindPath("a.b")->where, "runs/x.toml:2");
  EXPECT_EQ(root->FindPath("a.b")->source, "x.toml:2");
  ASSERT_EQ(root->FindPath("a.c")->items.size(), 2);
  EXPECT_EQ(root->FindPath("a.c")->items[1].text, "y");
  EXPECT_EQ(root->FindPath("a.d.e")->text, "500000000");
  EXPECT_EQ(root->FindPath("a.d.f")->text, "true");
}

TEST(ParseToml, SaysWhereItIsBroken) {
  const Result<ConfigValue> root = ParseToml("[a]\nb = 1\nb = 2\n", "runs/x.toml");
  ASSERT_FALSE(root.ok());
  EXPECT_EQ(root.error().where, "runs/x.toml:3");
  EXPECT_THAT(root.error().message, HasSubstr("is not valid TOML"));
}

}  // namespace
}  // namespace tidemark::config_torchtitan_test
