// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "tests/models/foreign_config.h"

namespace tidemark::config_transformers_command_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr const char* kFormat = "transformers";

/// A command line, with `launcher` in front of the script's name and `more` on its second line.
std::string Command(const std::string& launcher, const std::string& more = "") {
  return "accelerate launch " + launcher +
         " train.py --model_name_or_path meta-llama/Llama-2-7b-hf --per_device_train_batch_size 2 --max_length 2048 "
         "--output_dir out \\\n  " +
         more + "\n";
}

const std::vector<std::string> kSet = {"layout.dp=8", "precision.params=bf16"};

std::vector<std::string> With(std::vector<std::string> set) {
  set.insert(set.begin(), kSet.begin(), kSet.end());
  return set;
}

/// hf_argparser.py, _parse_dataclass_field: each option has its name with dashes as well.
TEST(ConfigTransformersCommand, NamesHaveDashesOrUnderscores) {
  const Settings settings = MustRead(kFormat,
                                     "torchrun train.py --model-name-or-path meta-llama/Llama-2-7b-hf --bf16 "
                                     "--per-device-train-batch-size 4 --gradient_accumulation_steps 2 "
                                     "--gradient-accumulation-steps 16 --max-length 2048\n",
                                     kSet);
  EXPECT_EQ(TextOf(settings, "micro_batch_size"), "4");
  EXPECT_EQ(TextOf(settings, "accumulation_steps"), "16");  // the last counts
  EXPECT_EQ(TextOf(settings, "network"), "llama-2-7b");
  EXPECT_EQ(TextOf(settings, "sequence_length"), "2048");
}

/// GemmaRMSNorm, Gemma3RMSNorm and Olmo2RMSNorm (modeling_<type>.py) cast down behind the weight.
TEST(ConfigTransformersCommand, NormsOfSomeModelsMultiplyInFp32) {
  const auto norms_of = [](const std::string& model) {
    return TextOf(MustRead(kFormat,
                           "train.py --model_name_or_path " + model +
                               " --per_device_train_batch_size 2 --max_length 1024 --dtype bfloat16",
                           kSet),
                  "network.norm_kernel");
  };
  for (const char* model : {"google/gemma-2b", "google/gemma-3-1b-pt", "allenai/OLMo-2-1124-7B"}) {
    EXPECT_EQ(norms_of(model), "eager-fp32-weight") << model;
  }
  EXPECT_EQ(norms_of("Qwen/Qwen3-8B"), "eager");
}

TEST(ConfigTransformersCommand, BracesAreSections) {
  const Settings some = MustRead(
      kFormat, Command("", "--use_liger_kernel true --liger_kernel_config '{\"rms_norm\": false, \"rope\": true}'"),
      kSet);
  EXPECT_EQ(TextOf(some, "network.norm_kernel"), "eager");
  EXPECT_EQ(TextOf(some, "buffers.fused_rope"), "true");
  EXPECT_EQ(TextOf(MustRead(kFormat,
                            "train.py --model_name_or_path gpt2 --per_device_train_batch_size 2 --max_length 1024 "
                            "--accelerator_config '{\"gradient_accumulation_kwargs\": {\"sync_each_batch\": true}}'",
                            kSet),
                   "strategy"),
            "ddp-every");  // on one line, which YAML would take for a key
  const std::string each =
      "--accelerator_config '{\"gradient_accumulation_kwargs\": {\"sync_each_batch\": true}}' "
      "--gradient_checkpointing_kwargs '{\"use_reentrant\": false}'";
  EXPECT_EQ(TextOf(MustRead(kFormat, Command("", each), kSet), "strategy"), "ddp-every");
  const Settings shards = MustRead(
      kFormat, Command("", "--bf16 --fsdp 'full_shard auto_wrap' --fsdp_config '{\"fsdp_version\": 2}'"), kSet);
  EXPECT_EQ(TextOf(shards, "strategy"), "fsdp2-defer");
  const Settings loaded =
      MustRead(kFormat, Command("", "--model_init_kwargs '{\"dtype\": \"bfloat16\"}'"), {"layout.dp=8"});
  EXPECT_EQ(TextOf(loaded, "precision.params"), "bf16");
  EXPECT_EQ(loaded.at("precision.params").source, "job.args:2");
}

TEST(ConfigTransformersCommand, OfBracesErrorsSayThePlace) {
  EXPECT_THAT(RefusalOf(kFormat, Command("", "--fsdp_config '{\"fsdp_version\": '"), kSet),
              AllOf(HasSubstr("runs/job.args:2: fsdp_config"), HasSubstr("is no JSON")));
  EXPECT_THAT(RefusalOf(kFormat, Command("", "--accelerator_config '{\"split_batches\": true}'"), kSet),
              AllOf(HasSubstr("runs/job.args:2: accelerator_config.split_batches"), HasSubstr("divided among ranks")));
}

/// TRL recomputes by itself.
TEST(ConfigTransformersCommand, NoTurnsOffWhatIsTrueByItself) {
  EXPECT_EQ(TextOf(MustRead(kFormat, Command(""), kSet), "recompute.policy"), "full");
  for (const char* off : {"--no_gradient_checkpointing", "--no-gradient-checkpointing"}) {
    EXPECT_EQ(TextOf(MustRead(kFormat, Command("", off), kSet), "recompute.policy"), "none") << off;
  }
  EXPECT_THAT(RefusalOf(kFormat, Command("", "--no_cuda"), kSet), HasSubstr("training on a CPU"));
}

/// accelerate's commands/launch.py: they decide how the model is wrapped, and the Trainer's arguments do not say it.
TEST(ConfigTransformersCommand, WhatTheLauncherIsAskedForIsAskedAbout) {
  const std::pair<const char*, const char*> words[] = {
      {"--use_deepspeed --zero_stage 3", "--set strategy=deepspeed-zero3"},
      {"--use_deepspeed", "--set strategy=deepspeed-zero2"},
      {"--config_file ds.yaml", "the system that the file chooses: --set strategy=deepspeed-zero3"},
      {"--config-file=ds.yaml", "the system that the file chooses"},
      {"--use_deepspeed --deepspeed_config_file ds.json", "--deepspeed FILE"},
      {"--use_fsdp", "--set strategy=fsdp2-defer"},
      {"--fsdp_sharding_strategy FULL_SHARD", "--set strategy=fsdp2-defer"}};
  for (const auto& [launcher, hint] : words) {
    EXPECT_THAT(RefusalOf(kFormat, Command(launcher), kSet),
                AllOf(HasSubstr("of which TrainingArguments say nothing"), HasSubstr(hint)))
        << launcher;
  }
  const Settings zero =
      MustRead(kFormat, Command("--use_deepspeed --zero_stage 3"), With({"strategy=deepspeed-zero3"}));
  EXPECT_EQ(TextOf(zero, "strategy"), "deepspeed-zero3");
  MustRead(kFormat, Command("--config_file ds.yaml"), With({"strategy=fsdp2-defer"}));
  MustRead(kFormat, Command("--use_fsdp --fsdp_sharding_strategy FULL_SHARD"), With({"strategy=fsdp1-no-sync"}));
  // The Trainer's own words come first.
  MustRead(kFormat, Command("--use_deepspeed", "--bf16 --deepspeed '{\"zero_optimization\": {\"stage\": 2}}'"), kSet);
}

TEST(ConfigTransformersCommand, AStrategyDoesNotSayAllOfALaunchersSystem) {
  const std::vector<std::string> fsdp = With({"strategy=fsdp1-no-sync"});
  const std::string grad_op = Command("--use_fsdp --fsdp_sharding_strategy SHARD_GRAD_OP");
  EXPECT_THAT(RefusalOf(kFormat, grad_op, fsdp), HasSubstr("--set shard.reshard_after_forward=true"));
  MustRead(kFormat, grad_op, With({"strategy=fsdp1-no-sync", "shard.reshard_after_forward=false"}));
  const std::string offloads = Command("--use_fsdp --fsdp_offload_params true");
  EXPECT_THAT(RefusalOf(kFormat, offloads, kSet), HasSubstr("--set strategy=fsdp2-defer"));
  EXPECT_THAT(RefusalOf(kFormat, offloads, With({"strategy=fsdp2-defer"})),
              HasSubstr("--set optimizer_step.offload=true"));
  MustRead(kFormat, offloads, With({"strategy=fsdp2-defer", "optimizer_step.offload=true"}));
  EXPECT_THAT(
      RefusalOf(kFormat, Command("--use_deepspeed --offload_optimizer_device cpu"), With({"strategy=deepspeed-zero2"})),
      HasSubstr("--set optimizer_step.offload=true"));
  EXPECT_THAT(RefusalOf(kFormat, Command("--dynamo_backend inductor"), kSet), HasSubstr("torch.compile fuses"));
  EXPECT_THAT(RefusalOf(kFormat, Command("--mixed_precision fp16"), kSet), HasSubstr("write --bf16 true"));
  MustRead(kFormat, Command("--mixed_precision bf16"), kSet);  // as TRL's by itself
  MustRead(kFormat, Command("--mixed_precision fp16", "--bf16 true"), kSet);
  EXPECT_THAT(RefusalOf(kFormat, Command("", "--config sft.yaml"), kSet), HasSubstr("a file of arguments"));
}

/// A launcher's option takes one word, and the script's name may stand behind it.
TEST(ConfigTransformersCommand, LaunchersCountRanks) {
  const std::vector<std::string> type = {"precision.params=bf16"};
  const std::pair<const char*, const char*> counts[] = {{"--num_processes 16", "16"},
                                                        {"--num_processes=16 --multi_gpu", "16"},
                                                        {"--nproc_per_node 8", "8"},
                                                        {"--nnodes 4 --nproc-per-node 8", "32"},
                                                        {"--num_nodes 2 --num_gpus 4", "8"}};
  for (const auto& [launcher, ranks] : counts) {
    const Settings settings = MustRead(kFormat, Command(launcher), type);
    EXPECT_EQ(TextOf(settings, "layout.dp"), ranks) << launcher;
    EXPECT_EQ(TextOf(settings, "sync.find_unused_parameters"), "false") << launcher;
  }
  EXPECT_EQ(TextOf(MustRead(kFormat, Command("--nproc_per_node 1"), type), "sync.find_unused_parameters"), "(nothing)");
  for (const char* open : {"--nproc_per_node $GPUS", "--nproc_per_node gpu", "--nnodes 1:4 --nproc_per_node 8"}) {
    EXPECT_THAT(RefusalOf(kFormat, Command(open), type), HasSubstr("the number of data-parallel ranks")) << open;
  }
}

TEST(ConfigTransformersCommand, OlderNamesAreRead) {
  EXPECT_EQ(TextOf(MustRead(kFormat, Command("", "--use_liger true"), kSet), "loss"), "fused");
  EXPECT_EQ(TextOf(MustRead(kFormat, Command(""), kSet), "loss"), "(nothing)");
}

}  // namespace
}  // namespace tidemark::config_transformers_command_test
