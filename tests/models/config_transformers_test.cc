// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "models/configs/config.h"
#include "models/configs/parse.h"
#include "models/configs/value.h"
#include "tests/models/foreign_config.h"
#include "tests/models/sample.h"

namespace tidemark::config_transformers_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr const char* kFormat = "transformers";
constexpr const char* kSample = "transformers-sft.yaml";

/// No such file says how many ranks there are.
const std::vector<std::string> kSet = {"layout.dp=8"};

std::string SampleWith(const std::string& line, const std::string& instead) {
  return SampleText(kSample, line, instead);
}

/// Arguments of a plain Trainer under DDP; `lines` besides.
std::string Plain(const std::string& lines = "") {
  return "model_name_or_path: gpt2\nper_device_train_batch_size: 4\noutput_dir: out\nmodel_max_length: 1024\n" + lines;
}

std::vector<std::string> With(std::vector<std::string> set) {
  set.insert(set.begin(), kSet.begin(), kSet.end());
  return set;
}

const std::vector<std::string> kBf16 = With({"precision.params=bf16"});

void ExpectTypes(const Settings& settings, const std::string& computed, const std::string& master) {
  for (const char* key : {"precision.params", "precision.gradients", "precision.reduce", "precision.accumulate"}) {
    EXPECT_EQ(TextOf(settings, key), computed) << key;
  }
  EXPECT_EQ(TextOf(settings, "precision.master"), master);
}

/// training_args.py's fields; accelerate's FSDP2 plugin keeps fp32 shards and computes and reduces in bf16.
TEST(ConfigTransformers, ReadsARecipeUnderFsdp2) {
  const Settings settings = MustRead(kFormat, SampleText(kSample), kSet);
  EXPECT_EQ(TextOf(settings, "network"), "llama-3-8b");
  EXPECT_EQ(TextOf(settings, "sequence_length"), "4096");
  EXPECT_EQ(TextOf(settings, "micro_batch_size"), "2");
  EXPECT_EQ(TextOf(settings, "accumulation_steps"), "8");
  EXPECT_EQ(TextOf(settings, "strategy"), "fsdp2-defer");
  EXPECT_EQ(TextOf(settings, "shard.reshard_after_forward"), "true");
  EXPECT_EQ(TextOf(settings, "recompute.policy"), "full");
  EXPECT_EQ(TextOf(settings, "optimizer"), "adamw");
  EXPECT_EQ(TextOf(settings, "optimizer_step.kernel"), "fused");
  EXPECT_EQ(TextOf(settings, "optimizer_step.clip_norm"), "1.0");
  ExpectTypes(settings, "bf16", "fp32");
  EXPECT_EQ(settings.at("sequence_length").source, "job.json:12");
}

/// training_args.py: 8 samples, one step, clipping at 1.0, a fused AdamW (PyTorch 2.8 on), nothing computed again;
/// trainer.py: DDP looks for unused parameters where nothing is.
TEST(ConfigTransformers, WhatIsAbsentHasTransformersDefaults) {
  const Settings settings =
      MustRead(kFormat, "model_name_or_path: gpt2\noutput_dir: out\nlearning_rate: 1e-4\nnum_train_epochs: 3\n",
               With({"precision.params=bf16", "sequence_length=1024"}));
  EXPECT_EQ(TextOf(settings, "micro_batch_size"), "8");
  EXPECT_EQ(TextOf(settings, "accumulation_steps"), "1");
  EXPECT_EQ(TextOf(settings, "optimizer_step.clip_norm"), "1.0");
  EXPECT_EQ(TextOf(settings, "optimizer_step.kernel"), "fused");
  EXPECT_EQ(TextOf(settings, "recompute.policy"), "none");
  EXPECT_EQ(TextOf(settings, "strategy"), "ddp-last");
  EXPECT_EQ(TextOf(settings, "sync.find_unused_parameters"), "true");
  EXPECT_EQ(settings.at("micro_batch_size").source, "transformers' default");
  EXPECT_EQ(settings.at("strategy").source, "assumed");  // a launcher may choose another
}

/// trainer.py clips where max_grad_norm is no None and above 0.
TEST(ConfigTransformers, NullAndZeroDoNotClip) {
  for (const char* norm : {"0", "0.0", "null"}) {
    const std::string text = Plain(std::string("max_grad_norm: ") + norm + "\n");
    EXPECT_EQ(TextOf(MustRead(kFormat, text, kBf16), "optimizer_step.clip_norm"), "(nothing)") << norm;
    const std::string under =
        text + "bf16: true\ndeepspeed: {zero_optimization: {stage: 2}, gradient_clipping: auto}\n";
    EXPECT_EQ(TextOf(MustRead(kFormat, under, kBf16), "optimizer_step.clip_norm"), "(nothing)") << norm;
  }
}

TEST(ConfigTransformers, DdpTrainsInWhatWasLoaded) {
  EXPECT_THAT(RefusalOf(kFormat, Plain(), kSet), HasSubstr("--set precision.params=bf16"));
  ExpectTypes(MustRead(kFormat, Plain("torch_dtype: bfloat16\nbf16: true\n"), kSet), "bf16", "none");
  ExpectTypes(MustRead(kFormat, Plain("dtype: float32\n"), kSet), "fp32", "none");
  ExpectTypes(MustRead(kFormat, Plain("torch_dtype: auto\n"), kBf16), "bf16", "none");
  EXPECT_THAT(RefusalOf(kFormat, Plain("dtype: float32\nbf16: true\n"), kSet), HasSubstr("autocast"));
  EXPECT_THAT(RefusalOf(kFormat, Plain("fp16: true\nbf16: true\n"), kBf16), HasSubstr("at most one"));
}

/// One of them is an older name of the other; which of two wins is the version's choice.
TEST(ConfigTransformers, TwoDtypesThatDifferAreRefused) {
  EXPECT_THAT(RefusalOf(kFormat, Plain("torch_dtype: bfloat16\ndtype: float32\n"), kSet),
              HasSubstr("job.json:5 says 'bfloat16': one of them counts"));
  EXPECT_THAT(RefusalOf(kFormat, Plain("dtype: auto\nmodel_init_kwargs: {dtype: bfloat16}\n"), kSet),
              HasSubstr("remove one of them"));
  const std::string alike = "torch_dtype: torch.bfloat16\ndtype: bfloat16\n";
  ExpectTypes(MustRead(kFormat, Plain(alike), kSet), "bf16", "none");
  ExpectTypes(MustRead(kFormat, Plain("torch_dtype: null\ndtype: bfloat16\n"), kSet), "bf16", "none");
}

/// torch/nn/parallel/distributed.py: 25 MiB behind a first bucket of 1 MiB; a bucket_cap_mb that is given is the first
/// bucket's size as well. accelerate hands on no value that is its own default, 25.
TEST(ConfigTransformers, ReadsDdpsOptions) {
  const Settings settings = MustRead(
      kFormat, Plain("ddp_bucket_cap_mb: 50\nddp_find_unused_parameters: false\nddp_static_graph: true\n"), kBf16);
  EXPECT_EQ(TextOf(settings, "sync.bucket_bytes"), "52428800");
  EXPECT_EQ(TextOf(settings, "sync.first_bucket_bytes"), "52428800");
  EXPECT_EQ(TextOf(settings, "sync.find_unused_parameters"), "false");
  EXPECT_EQ(TextOf(settings, "sync.static_graph"), "true");
  EXPECT_EQ(TextOf(MustRead(kFormat, Plain("ddp_bucket_cap_mb: 25\n"), kBf16), "sync.first_bucket_bytes"), "(nothing)");
  EXPECT_EQ(TextOf(MustRead(kFormat, Plain("gradient_checkpointing: true\n"), kBf16), "sync.find_unused_parameters"),
            "false");
  // One process has no DistributedDataParallel.
  const Settings one = MustRead(kFormat, Plain(), {"layout.dp=1", "precision.params=bf16"});
  EXPECT_EQ(TextOf(one, "sync.find_unused_parameters"), "(nothing)");
}

TEST(ConfigTransformers, ReadsFsdp1AsTransformersHandsItOn) {
  const auto read = [](const std::string& lines) {
    return MustRead(kFormat, Plain("bf16: true\n" + lines), With({"shard.replicas=2"}));
  };
  const Settings plain = read("fsdp: full_shard auto_wrap\n");
  EXPECT_EQ(TextOf(plain, "strategy"), "fsdp1-no-sync");
  EXPECT_EQ(TextOf(plain, "shard.backward_prefetch"), "none");
  ExpectTypes(plain, "bf16", "fp32");
  const Settings grad_op = read(
      "fsdp: [shard_grad_op, auto_wrap]\nfsdp_config: {backward_prefetch: backward_pre, limit_all_gathers: true}\n");
  EXPECT_EQ(TextOf(grad_op, "shard.reshard_after_forward"), "false");
  EXPECT_EQ(TextOf(grad_op, "shard.backward_prefetch"), "pre");
  EXPECT_EQ(TextOf(grad_op, "shard.limit_all_gathers"), "true");
  EXPECT_EQ(TextOf(read("fsdp: hybrid_shard auto_wrap\n"), "shard.replicas"), "2");
  EXPECT_EQ(TextOf(read("fsdp: full_shard auto_wrap\nfsdp_config: {activation_checkpointing: true, xla: false}\n"),
                   "recompute.policy"),
            "full");
}

/// _apply_legacy_fsdp_to_config: shard_grad_op does not reshard; `fsdp: true` wraps by itself and is version 2.
TEST(ConfigTransformers, ReadsFsdp2) {
  const Settings grad_op =
      MustRead(kFormat, Plain("bf16: true\nfsdp: shard_grad_op auto_wrap\nfsdp_config: {version: 2}\n"), kSet);
  EXPECT_EQ(TextOf(grad_op, "strategy"), "fsdp2-defer");
  EXPECT_EQ(TextOf(grad_op, "shard.reshard_after_forward"), "false");
  EXPECT_EQ(TextOf(MustRead(kFormat, Plain("bf16: true\nfsdp: true\n"), kSet), "strategy"), "fsdp2-defer");
  ExpectTypes(MustRead(kFormat, Plain("dtype: bfloat16\nfsdp: true\n"), kSet), "bf16", "none");
}

/// torch.optim takes its for-loop for tensors of a CPU, where it is asked for no other
/// (_default_to_fused_or_foreach).
TEST(ConfigTransformers, ReadsShardsInHostMemory) {
  const std::string text = "bf16: true\nfsdp: full_shard auto_wrap offload\nfsdp_config: {version: 2}\n";
  const Settings settings = MustRead(kFormat, Plain(text), kSet);
  EXPECT_EQ(TextOf(settings, "strategy"), "fsdp2-defer");
  EXPECT_EQ(TextOf(settings, "optimizer_step.offload"), "true");
  EXPECT_EQ(TextOf(settings, "optimizer_step.kernel"), "fused");
  const std::string explicitly = text.substr(0, text.size() - 2) + ", cpu_offload: false}\n";
  EXPECT_EQ(TextOf(MustRead(kFormat, Plain(explicitly), kSet), "optimizer_step.offload"), "(nothing)");
  EXPECT_THAT(RefusalOf(kFormat, Plain("bf16: true\nfsdp: true\nfsdp_config: {fsdp_offload_params: true}\n"), kSet),
              HasSubstr("fsdp_config.fsdp_offload_params: is not read by transformers"));
  const std::string of_config = "bf16: true\nfsdp: true\nfsdp_config: {cpu_offload: true}\noptim: adamw_torch\n";
  const Settings looped = MustRead(kFormat, Plain(of_config), kSet);
  EXPECT_EQ(TextOf(looped, "optimizer_step.offload"), "true");
  EXPECT_EQ(TextOf(looped, "optimizer_step.kernel"), "for-loop");
  EXPECT_EQ(
      TextOf(MustRead(kFormat, Plain("bf16: true\nfsdp: true\noptim: adamw_torch\n"), kSet), "optimizer_step.kernel"),
      "foreach");
}

TEST(ConfigTransformers, WhatFsdpCannotDoHereIsRefused) {
  const auto refusal = [](const std::string& lines) { return RefusalOf(kFormat, Plain("bf16: true\n" + lines), kSet); };
  EXPECT_THAT(refusal("fsdp: full_shard\n"), HasSubstr("set it to 'full_shard auto_wrap'"));
  EXPECT_THAT(refusal("fsdp: full_shard auto_wrap offload\n"), HasSubstr("FSDP1's CPUOffload"));
  EXPECT_THAT(refusal("fsdp: full_shrad auto_wrap\n"), HasSubstr("full_shard"));
  EXPECT_THAT(refusal("fsdp: hybrid_shard auto_wrap\n"), HasSubstr("--set shard.replicas=2"));
  EXPECT_THAT(refusal("fsdp: full_shard auto_wrap\nfsdp_config: {min_num_params: 20000}\n"), HasSubstr("no layers"));
  EXPECT_THAT(refusal("fsdp: full_shard auto_wrap\nfsdp_config: {xla: true}\n"), HasSubstr("XLA"));
  EXPECT_THAT(refusal("fsdp: full_shard auto_wrap\nfsdp_config: fsdp.json\n"), HasSubstr("fields of that file here"));
  EXPECT_THAT(refusal("fsdp: full_shard auto_wrap\ngradient_checkpointing: true\n"
                      "fsdp_config: {activation_checkpointing: true}\n"),
              HasSubstr("cannot both be true"));
  EXPECT_THAT(refusal("fsdp: full_shard auto_wrap\ndeepspeed: ds.json\n"), HasSubstr("exclude each other"));
}

/// HfTrainerDeepSpeedConfig.trainer_config_process: "auto" is what these arguments say.
TEST(ConfigTransformers, FillsInWhatDeepSpeedLeavesToIt) {
  const std::string config =
      "deepspeed: {zero_optimization: {stage: 2}, train_micro_batch_size_per_gpu: auto, gradient_clipping: auto, "
      "gradient_accumulation_steps: auto, train_batch_size: auto, bf16: {enabled: auto}, fp16: {enabled: auto}}\n";
  const Settings settings =
      MustRead(kFormat, Plain("bf16: true\ngradient_accumulation_steps: 16\nmax_grad_norm: 0.5\n" + config), kSet);
  EXPECT_EQ(TextOf(settings, "strategy"), "deepspeed-zero2");
  EXPECT_EQ(TextOf(settings, "micro_batch_size"), "4");
  EXPECT_EQ(TextOf(settings, "accumulation_steps"), "16");
  EXPECT_EQ(TextOf(settings, "optimizer_step.clip_norm"), "0.5");
  ExpectTypes(settings, "bf16", "fp32");
  EXPECT_EQ(
      TextOf(MustRead(kFormat, Plain("bf16: true\nmax_grad_norm: 0\n" + config), kSet), "optimizer_step.clip_norm"),
      "(nothing)");
  EXPECT_EQ(TextOf(MustRead(kFormat, Plain("bf16: true\n" + config), With({"micro_batch_size=2"})), "micro_batch_size"),
            "4");  // the command line comes behind, and is no mistake of the files
}

TEST(ConfigTransformers, TwoBatchesThatDifferAreRefusedAsHuggingFaceDoes) {
  const auto refusal = [](const std::string& config) {
    return RefusalOf(kFormat, Plain("bf16: true\ndeepspeed: " + config + "\n"), kSet);
  };
  EXPECT_THAT(refusal("{zero_optimization: {stage: 2}, train_micro_batch_size_per_gpu: 2}"),
              HasSubstr("per_device_train_batch_size is 4"));
  EXPECT_THAT(refusal("{zero_optimization: {stage: 2}, gradient_clipping: 0.5}"), HasSubstr("max_grad_norm is 1.0"));
  EXPECT_THAT(refusal("{zero_optimization: {stage: 2}, bf16: {enabled: false}}"), HasSubstr("bf16 is true"));
  EXPECT_THAT(refusal("nowhere.json"),
              HasSubstr("tidemark predict nowhere.json --set network=gpt2 --set sequence_length=1024 --set layout.dp=8 "
                        "--set micro_batch_size=4 --set accumulation_steps=1 --set precision.params=bf16"));
  EXPECT_THAT(refusal("[]"), HasSubstr("expected DeepSpeed's config, found a list"));
}

/// Files in tests/jobs, which is not the current folder: the config lies beside the file that names it.
TEST(ConfigTransformers, ReadsTheFileThatDeepSpeedNames) {
  const std::filesystem::path folder = std::filesystem::path(TIDEMARK_TESTS) / "jobs";
  const std::string text =
      SampleText("llama-factory-full-sft.yaml", "deepspeed: ", "deepspeed: " + folder.string() + "/");
  const Settings settings = MustRead(kFormat, text, kSet);
  EXPECT_EQ(TextOf(settings, "strategy"), "deepspeed-zero3");
  EXPECT_EQ(TextOf(settings, "network"), "qwen2-7b");
  EXPECT_EQ(TextOf(settings, "sync.bucket_elements"), std::to_string(3584 * 3584));  // auto: hidden size squared
  EXPECT_EQ(TextOf(settings, "recompute.policy"), "full");  // LLaMA-Factory's model/model_utils/checkpointing.py
  EXPECT_EQ(settings.at("recompute.policy").source, "LLaMA-Factory's default");
  ExpectTypes(settings, "bf16", "fp32");
}

/// Recipes are launched with a config of accelerate's, which they do not name: its system is what is set.
TEST(ConfigTransformers, DtypesFollowTheLaunchersSystem) {
  const std::string text = Plain("torch_dtype: bfloat16\nbf16: true\n");
  const DType half = DType::bf16, wide = DType::fp32;  // all but what the model computes with is the strategy's own
  const Result<Job> job =
      ParseJob(text, "job.yaml", {With({"strategy=deepspeed-zero3"}), std::nullopt, {}}, KnownStrategies());
  ASSERT_TRUE(job.ok()) << job.error().Text();
  EXPECT_EQ(job->axes.precision, (Precision{half, half, half, half, wide, wide}));
  MustRead(kFormat, text, With({"strategy=deepspeed-bf16"}));
  ExpectTypes(MustRead(kFormat, text, With({"strategy=fsdp2-defer"})), "bf16", "fp32");
  ExpectTypes(MustRead(kFormat, text, With({"strategy=ddp-every"})), "bf16", "none");
  EXPECT_EQ(TextOf(MustRead(kFormat, text, With({"strategy=fsdp1"})), "strategy"), "fsdp1-no-sync");
}

TEST(ConfigTransformers, SyncEachBatchReducesEveryMicrobatch) {
  const std::string each = "accelerator_config: {gradient_accumulation_kwargs: {sync_each_batch: true}}\n";
  EXPECT_EQ(TextOf(MustRead(kFormat, Plain(each), kBf16), "strategy"), "ddp-every");
  EXPECT_EQ(TextOf(MustRead(kFormat, Plain(each + "bf16: true\nfsdp: full_shard auto_wrap\n"), kSet), "strategy"),
            "fsdp1");
  EXPECT_EQ(TextOf(MustRead(kFormat, SampleText(kSample) + each, kSet), "strategy"), "fsdp2-scatter-each");
}

/// torch.optim takes foreach kernels unless it is asked for fused ones; transformers gives SGD no momentum.
TEST(ConfigTransformers, Optimizers) {
  const auto read = [](const std::string& optim) { return MustRead(kFormat, Plain("optim: " + optim + "\n"), kBf16); };
  EXPECT_EQ(TextOf(read("adamw_torch"), "optimizer_step.kernel"), "foreach");
  EXPECT_EQ(TextOf(read("sgd"), "optimizer"), "sgd");
  const std::pair<const char*, const char*> others[] = {{"adamw_bnb_8bit", "moments of 8 bits"},
                                                        {"paged_adamw_32bit", "paged to host memory"},
                                                        {"adafactor", "rows and columns"},
                                                        {"galore_adamw_8bit", "projected gradients"},
                                                        {"adalomo", "within the backward pass"},
                                                        {"lion_32bit", "another optimizer than AdamW and SGD"},
                                                        {"paged_adamw_8bit", "moments of 8 bits"},
                                                        {"adamw_torch_npu_fused", "NPUs"},
                                                        {"adamw_torch_fussed", "another optimizer than"}};
  for (const auto& [optim, reason] : others) {
    EXPECT_THAT(RefusalOf(kFormat, Plain(std::string("optim: ") + optim + "\n"), kBf16), HasSubstr(reason)) << optim;
  }
}

TEST(ConfigTransformers, SaysAllThatIsMissingAtOnce) {
  const std::string refusal = RefusalOf(kFormat, "per_device_train_batch_size: 2\n");
  EXPECT_THAT(refusal, HasSubstr("Hugging Face's config does not say the network, nor the length of sequences"));
  EXPECT_THAT(refusal, HasSubstr("--set network=llama-3-8b --set sequence_length=4096 --set layout.dp=8 --set "
                                 "precision.params=bf16"));
  // Of a model that the zoo does not have, the sizes are what is missing.
  const std::string other = RefusalOf(kFormat, SampleWith("meta-llama/Llama-3.1-8B", "HuggingFaceTB/SmolLM2-1.7B"));
  EXPECT_THAT(other, HasSubstr("TRL's config does not say the sizes of 'HuggingFaceTB/SmolLM2-1.7B'"));
  EXPECT_THAT(other, HasSubstr("--set network=config.json --set layout.dp=8"));
  EXPECT_THAT(other, Not(HasSubstr("sequence_length")));
}

TEST(ConfigTransformers, LengthsThatContradictAreAskedFor) {
  const std::string text = SampleWith("max_length: 4096\n", "max_length: 4096\nmax_seq_length: 2048\n");
  EXPECT_THAT(RefusalOf(kFormat, text, kSet), HasSubstr("--set sequence_length=4096"));
  MustRead(kFormat, text, With({"sequence_length=2048"}));
}

TEST(ConfigTransformers, OtherKindsOfTrainingAreRefusedByName) {
  const std::pair<const char*, const char*> lines[] = {{"use_peft: true", "LoRA"},
                                                       {"load_in_4bit: true", "quantized weights"},
                                                       {"beta: 0.1", "DPO"},
                                                       {"num_generations: 8", "GRPO"},
                                                       {"torch_compile: true", "fuses"},
                                                       {"auto_find_batch_size: true", "--set micro_batch_size"},
                                                       {"loss_type: chunked_nll", "another loss than cross entropy"},
                                                       {"label_smoothing_factor: 0.1", "smoothed labels"},
                                                       {"do_predict: true", "does not train"},
                                                       {"attn_implementation: eager", "network.attention_kernel"},
                                                       {"torch_empty_cache_steps: 10", "given back every few steps"},
                                                       {"activation_offloading: true", "host memory"}};
  for (const auto& [line, reason] : lines) {
    EXPECT_THAT(RefusalOf(kFormat, Plain(std::string(line) + "\n"), kBf16), HasSubstr(reason)) << line;
  }
  MustRead(kFormat, Plain("auto_find_batch_size: true\n"), With({"precision.params=bf16", "micro_batch_size=2"}));
}

/// hparams/finetuning_args.py: LoRA and SFT are the defaults.
TEST(ConfigTransformers, OfLlamaFactoryFullTrainingOnTextsIsRead) {
  const std::string text = "model_name_or_path: gpt2\nper_device_train_batch_size: 1\ncutoff_len: 1024\n";
  EXPECT_THAT(RefusalOf(kFormat, text, kSet), HasSubstr("'lora', LLaMA-Factory's default, is not supported"));
  EXPECT_THAT(RefusalOf(kFormat, text + "finetuning_type: freeze\n", kSet), HasSubstr("network.trainable"));
  EXPECT_THAT(RefusalOf(kFormat, text + "finetuning_type: full\nstage: dpo\n", kSet),
              HasSubstr("'dpo' is not supported"));
  // It casts weights up, but for pure_bf16.
  EXPECT_THAT(RefusalOf(kFormat, text + "finetuning_type: full\nbf16: true\n", kSet), HasSubstr("autocast"));
  ExpectTypes(MustRead(kFormat, text + "finetuning_type: full\npure_bf16: true\n", kSet), "bf16", "none");
  const Settings kept =
      MustRead(kFormat, text + "finetuning_type: full\npure_bf16: true\ndisable_gradient_checkpointing: true\n", kSet);
  EXPECT_EQ(TextOf(kept, "recompute.policy"), "none");
}

/// finetune.py: bf16 weights, no clipping, a fused AdamW, and no_sync unless sync_each_batch.
TEST(ConfigTransformers, ReadsOpenInstruct) {
  const std::string text =
      "model_name_or_path: meta-llama/Llama-2-7b-hf\nuse_slow_tokenizer: true\nmax_seq_length: 4096\n"
      "per_device_train_batch_size: 1\ngradient_accumulation_steps: 16\n";
  const Settings settings = MustRead(kFormat, text, kSet);
  EXPECT_EQ(TextOf(settings, "optimizer_step.clip_norm"), "(nothing)");
  EXPECT_EQ(TextOf(settings, "optimizer_step.kernel"), "fused");
  ExpectTypes(settings, "bf16", "none");
  EXPECT_EQ(TextOf(MustRead(kFormat, text + "sync_each_batch: true\n", kSet), "strategy"), "ddp-every");
}

TEST(ConfigTransformers, MisspeltFieldsAreRefusedAndOthersPass) {
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("gradient_accumulation_steps", "gradient_acumulation_steps"), kSet),
              HasSubstr("did you mean gradient_accumulation_steps?"));
  EXPECT_THAT(RefusalOf(kFormat, SampleWith("fsdp_version: 2", "fsdp_versoin: 2"), kSet),
              HasSubstr("did you mean fsdp_config.fsdp_version?"));
  MustRead(kFormat, SampleText(kSample) + "our_own_field: 1\nwandb_project: ours\n", kSet);
}

/// Each sample of tests/jobs is of one format only, also beside what two formats have in common.
TEST(ConfigTransformers, FilesAreOfOneFormat) {
  const auto formats_of = [](const std::string& text, const std::string& path) {
    const Result<ConfigValue> root = ParseAnyConfig(text, path);
    EXPECT_TRUE(root.ok()) << path;
    std::vector<std::string> names;
    for (const ConfigFormat& format : ConfigFormats()) {
      if (root && format.recognises(*root)) {
        names.push_back(format.name);
      }
    }
    return names;
  };
  for (const auto& entry : std::filesystem::directory_iterator(std::filesystem::path(TIDEMARK_TESTS) / "jobs")) {
    const std::string file = entry.path().filename().string();
    EXPECT_THAT(formats_of(SampleText(file), file), SizeIs(1)) << file;
  }
  // Arguments of run_clm.py have the model's type among them, axolotl's its class.
  EXPECT_THAT(formats_of(Plain("model_type: gpt2\n"), "job.yaml"), ElementsAre("transformers"));
  EXPECT_THAT(formats_of("base_model: gpt2\nmicro_batch_size: 1\nmodel_type: AutoModelForCausalLM\n", "job.yaml"),
              ElementsAre("axolotl"));
  EXPECT_THAT(formats_of("model_type: llama\nhidden_size: 64\ngradient_checkpointing: false\n", "config.json"),
              ElementsAre("huggingface"));
}

/// What a Trainer writes of itself (to_json_string): everything, most of it empty.
TEST(ConfigTransformers, ReadsATrainersDump) {
  const Settings settings = MustRead(
      kFormat,
      R"({"output_dir": "out", "do_train": false, "do_eval": false, "do_predict": false, "per_device_train_batch_size": 2,
          "gradient_accumulation_steps": 4, "bf16": true, "fsdp": [], "deepspeed": null, "tp_size": 0,
          "fsdp_config": {"min_num_params": 0, "xla": false, "xla_fsdp_v2": false, "xla_fsdp_grad_ckpt": false},
          "accelerator_config": {"split_batches": false, "gradient_accumulation_kwargs": null}, "optim_args": null,
          "torch_compile": false, "torch_compile_backend": null, "optim": "adamw_torch", "label_smoothing_factor": 0.0})",
      With({"network=llama-2-7b", "sequence_length=2048", "precision.params=bf16"}));
  EXPECT_EQ(TextOf(settings, "micro_batch_size"), "2");
  EXPECT_EQ(TextOf(settings, "strategy"), "ddp-last");
}

}  // namespace
}  // namespace tidemark::config_transformers_test
