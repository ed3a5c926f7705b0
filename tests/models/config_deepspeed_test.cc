// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "models/configs/config.h"
#include "tests/models/foreign_config.h"

namespace tidemark::config_deepspeed_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kFormat = "deepspeed";

/// What nobody but the command line can say.
const std::vector<std::string> kSet = {"network=llama-3-8b", "sequence_length=4096", "layout.dp=8"};

Settings Read(const std::string& text, std::vector<std::string> set = {}) {
  set.insert(set.begin(), kSet.begin(), kSet.end());
  return MustRead(kFormat, text, set);
}

std::string Refuse(const std::string& text, std::vector<std::string> set = {}) {
  set.insert(set.begin(), kSet.begin(), kSet.end());
  return RefusalOf(kFormat, text, set);
}

/// train_batch_size = micro batch * accumulation steps * ranks, on eight ranks (DeepSpeed's config documentation).
TEST(ConfigDeepSpeed, TwoBatchSizesGiveTheThird) {
  struct Case {
    const char *text, *micro, *steps;
  };
  for (const Case& expected :
       {Case{R"("train_batch_size": 64, "train_micro_batch_size_per_gpu": 2)", "2", "4"},
        Case{R"("train_batch_size": 64, "gradient_accumulation_steps": 4)", "2", "4"},
        Case{R"("train_batch_size": 64)", "8", "1"}, Case{R"("train_micro_batch_size_per_gpu": 3)", "3", "1"},
        Case{R"("train_micro_batch_size_per_gpu": 3, "gradient_accumulation_steps": 5)", "3", "5"},
        Case{R"("train_batch_size": 64, "train_micro_batch_size_per_gpu": 2,
                                       "gradient_accumulation_steps": 4)",
             "2", "4"}}) {
    const Settings settings = Read(fmt::format("{{{}, \"zero_optimization\": {{\"stage\": 1}}}}", expected.text));
    EXPECT_EQ(TextOf(settings, "micro_batch_size"), expected.micro) << expected.text;
    EXPECT_EQ(TextOf(settings, "accumulation_steps"), expected.steps) << expected.text;
  }
}

TEST(ConfigDeepSpeed, ThreeBatchSizesGiveTheNumberOfRanks) {
  const std::string text =
      R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4})";
  EXPECT_EQ(TextOf(MustRead(kFormat, text, {"network=gpt2", "sequence_length=1024"}), "layout.dp"), "8");
  EXPECT_THAT(RefusalOf(kFormat, text, {"network=gpt2", "sequence_length=1024", "layout.dp=4"}),
              HasSubstr("train_batch_size: is not equal to micro_batch_per_gpu * gradient_acc_step * world_size: "
                        "64 != 2 * 4 * 4"));
}

TEST(ConfigDeepSpeed, ABatchThatDoesNotDivideIsRefused) {
  EXPECT_THAT(Refuse(R"({"train_batch_size": 60, "train_micro_batch_size_per_gpu": 2})"), HasSubstr("60 != 2 * 3 * 8"));
}

/// Who sets a part of the batch asks about another batch.
TEST(ConfigDeepSpeed, TheCommandLineChangesTheBatch) {
  const std::string text =
      R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4})";
  const Settings settings = Read(text, {"accumulation_steps=16"});
  EXPECT_EQ(TextOf(settings, "accumulation_steps"), "16");
  EXPECT_EQ(TextOf(settings, "micro_batch_size"), "2");
}

TEST(ConfigDeepSpeed, SaysAllThatIsMissingAtOnce) {
  const std::string refusal = RefusalOf(kFormat, R"({"zero_optimization": {"stage": 2}, "train_batch_size": "auto"})");
  for (const char* part : {"the network", "the length of sequences", "data-parallel ranks", "size of a micro batch",
                           "--set network=llama-3-8b --set sequence_length=4096 --set layout.dp=8 --set "
                           "micro_batch_size=1"}) {
    EXPECT_THAT(refusal, HasSubstr(part));
  }
  // These follow from the number of ranks, which is asked for alone.
  EXPECT_THAT(RefusalOf(kFormat, R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2})",
                        {"network=gpt2", "sequence_length=1024"}),
              Not(HasSubstr("accumulation_steps")));
}

/// engine.py, _do_optimizer_sanity_check at edaa7221.
TEST(ConfigDeepSpeed, StageAndDtypesChooseTheOptimizer) {
  struct Case {
    const char *zero, *rest, *strategy;
  };
  for (const Case& expected :
       {Case{R"("stage": 0)", R"("bf16": {"enabled": true})", "deepspeed-zero0"},
        Case{R"("stage": 0)", R"("fp16": {"enabled": true})", "deepspeed-zero0"},
        Case{R"("stage": 1)", R"("bf16": {"enabled": true})", "deepspeed-zero1"},
        Case{R"("stage": 1)", R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"})",
             "deepspeed-bf16"},
        Case{R"("stage": 2)", R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"})",
             "deepspeed-zero2"},
        Case{R"("stage": 3)", R"("bfloat16": {"enabled": true})", "deepspeed-zero3"}}) {
    const Settings settings = Read(fmt::format(
        R"({{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{{}}}, {}}})", expected.zero, expected.rest));
    EXPECT_EQ(TextOf(settings, "strategy"), expected.strategy) << expected.zero << expected.rest;
  }
}

// With offloading stage 1 keeps ZeRO's optimizer, which with an accumulator of its own is not modelled.
TEST(ConfigDeepSpeed, OffloadingTakesNoBf16Optimizer) {
  std::vector<std::string> set = kSet;
  const Result<Settings> settings = ReadForeign(
      kFormat,
      R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "fp32"},
                   "zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}})",
      set);
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(TextOf(*settings, "strategy"), "deepspeed-zero1");
}

TEST(ConfigDeepSpeed, DtypesFollowTheModels) {
  const std::string head = R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, )";
  const Settings half = Read(head + R"("fp16": {"enabled": true}})");
  for (const char* key : {"precision.params", "precision.gradients", "precision.accumulate", "precision.reduce"}) {
    EXPECT_EQ(TextOf(half, key), "fp16") << key;
  }
  EXPECT_EQ(TextOf(half, "precision.master"), "fp32");
  const Settings wire = Read(head + R"("bf16": {"enabled": true}, "communication_data_type": "fp32"})");
  EXPECT_EQ(TextOf(wire, "precision.reduce"), "fp32");
  EXPECT_EQ(TextOf(wire, "precision.params"), "bf16");
  const Settings plain = Read(R"({"train_micro_batch_size_per_gpu": 1})");
  EXPECT_EQ(TextOf(plain, "precision.params"), "fp32");
  EXPECT_EQ(TextOf(plain, "precision.master"), "none");
  EXPECT_EQ(TextOf(plain, "strategy"), "deepspeed-zero0");
  EXPECT_THAT(Refuse(head + R"("bf16": {"enabled": true}, "fp16": {"enabled": true}})"),
              HasSubstr("bfloat16 and fp16 modes cannot be simultaneously enabled"));
}

TEST(ConfigDeepSpeed, BucketsAreElementsHoweverTheyAreSpelled) {
  const Settings settings = Read(R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
    "zero_optimization": {"stage": 3, "overlap_comm": false, "reduce_bucket_size": 5e7,
                          "stage3_prefetch_bucket_size": 50000, "stage3_param_persistence_threshold": 1.0e+5,
                          "stage3_max_live_parameters": 1e9, "stage3_max_reuse_distance": 0}})");
  EXPECT_EQ(TextOf(settings, "sync.bucket_elements"), "50000000");
  EXPECT_EQ(TextOf(settings, "shard.prefetch_elements"), "50000");
  EXPECT_EQ(TextOf(settings, "shard.persistence_threshold"), "100000");
  EXPECT_EQ(TextOf(settings, "shard.max_live_elements"), "1000000000");
  EXPECT_EQ(TextOf(settings, "shard.reuse_distance"), "0");
  EXPECT_EQ(TextOf(settings, "sync.overlap"), "false");
}

/// trainer_config_finalize: h * h, int(0.9 * h * h) and 10 * h; here h is 4096.
TEST(ConfigDeepSpeed, AutoIsWhatHuggingFacePutsThere) {
  const std::string text = R"({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 3,
    "reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
    "stage3_param_persistence_threshold": "auto"}})";
  const std::vector<std::string> batch = {"micro_batch_size=1", "accumulation_steps=8"};
  const Settings settings = Read(text, {batch[0], batch[1], "precision.params=bf16"});
  EXPECT_EQ(TextOf(settings, "sync.bucket_elements"), "16777216");
  EXPECT_EQ(TextOf(settings, "shard.prefetch_elements"), "15099494");
  EXPECT_EQ(TextOf(settings, "shard.persistence_threshold"), "40960");
  EXPECT_EQ(TextOf(settings, "optimizer_step.clip_norm"), "1.0");
  EXPECT_EQ(TextOf(settings, "precision.gradients"), "bf16");
  EXPECT_THAT(Refuse(text, batch), HasSubstr("bf16.enabled: is 'auto'"));
  EXPECT_THAT(Refuse(text, {"precision.params=bf16", "micro_batch_size=1"}),
              HasSubstr("how many microbatches are accumulated"));
}

TEST(ConfigDeepSpeed, AnOptimizerInHostMemory) {
  const std::string head = R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": )";
  for (const char* zero : {R"({"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}}})",
                           R"({"stage": 2, "cpu_offload": true}})"}) {
    EXPECT_EQ(TextOf(Read(head + zero), "optimizer_step.offload"), "true") << zero;
  }
  EXPECT_FALSE(
      Read(head + R"({"stage": 2, "offload_optimizer": {"device": "none"}}})").contains("optimizer_step.offload"));
  EXPECT_THAT(Refuse(head + R"({"stage": 3, "offload_optimizer": {"device": "nvme"}}})"),
              HasSubstr("'nvme' is not supported"));
}

TEST(ConfigDeepSpeed, WhatIsNotModelledIsRefusedByName) {
  const std::string head = R"({"train_micro_batch_size_per_gpu": 1, )";
  struct Case {
    const char *text, *refusal;
  };
  for (const Case& expected :
       {Case{R"("zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}})",
             "zero_optimization.offload_param.device: 'cpu' is not supported by this version: parameters in host "
             "memory"},
        Case{R"("zero_optimization": {"stage": 3, "zero_hpz_partition_size": 8}})", "zero_hpz_partition_size: '8'"},
        Case{R"("activation_checkpointing": {"partition_activations": true}})", "recompute.policy"},
        Case{R"("optimizer": {"type": "OneBitAdam"}})",
             "optimizer.type: expected one of AdamW, Adam, SGD, found 'OneBitAdam'"},
        Case{R"("zero_optimization": true})", "expected a section"}}) {
    EXPECT_THAT(Refuse(head + expected.text), HasSubstr(expected.refusal));
  }
  // The values that are modelled pass, as they are spelled.
  EXPECT_EQ(TextOf(Read(head + R"("zero_optimization": {"stage": 3, "offload_param": {"device": "none"},
                                "sub_group_size": 1000000000, "mics_shard_size": -1}})"),
                   "strategy"),
            "deepspeed-zero3");
}

// DeepSpeed's own classes forbid unknown fields in ZeRO's section (DeepSpeedConfigModel).
TEST(ConfigDeepSpeed, UnknownFieldsWhereAllMatterAreRefused) {
  const auto zero = [](const std::string& fields) {
    return R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, )" + fields + "}}";
  };
  EXPECT_THAT(Refuse(zero(R"("offload_params": {"device": "cpu"})")),
              HasSubstr("zero_optimization.offload_params: is not known to this version"));
  EXPECT_THAT(Refuse(zero(R"("zenflow": {"topk_ratio": 0.1})")), HasSubstr("zero_optimization.zenflow"));
  EXPECT_THAT(Refuse(zero(R"("offload_optimizer": "cpu")")), HasSubstr("expected a section, found 'cpu'"));
  EXPECT_THAT(Refuse(R"({"train_micro_batch_size_per_gpu": 1, "bf16": true})"), HasSubstr("bf16: expected a section"));
  EXPECT_THAT(Refuse(R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": "auto"}})"),
              HasSubstr("expected a whole number, found 'auto'"));
}

// Their names without "stage3_" are pydantic's own (populate_by_name).
TEST(ConfigDeepSpeed, StageThreesFieldsHaveTwoNames) {
  const Settings settings = Read(R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3,
    "max_live_parameters": 2e9, "prefetch_bucket_size": 1e6}})");
  EXPECT_EQ(TextOf(settings, "shard.max_live_elements"), "2000000000");
  EXPECT_EQ(TextOf(settings, "shard.prefetch_elements"), "1000000");
}

// 8 billion parameters on eight ranks are more than one group of 1e9; below stage 3 nobody looks.
TEST(ConfigDeepSpeed, LargerSubGroupsAreTheSameWhereOneHoldsAll) {
  const std::string head = R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": )";
  EXPECT_THAT(Refuse(head + R"(3, "sub_group_size": 1e12}})"), HasSubstr("zero_optimization.sub_group_size"));
  MustRead(kFormat, head + R"(3, "sub_group_size": 1e12}})", {"network=gpt2", "sequence_length=1024", "layout.dp=8"});
  EXPECT_THAT(Refuse(head + R"(3, "sub_group_size": 0}})"), HasSubstr("zero_optimization.sub_group_size"));
  Read(head + R"(2, "sub_group_size": 0}})");
}

// 16 samples of 8 at a time: two ranks.
TEST(ConfigDeepSpeed, HintsANumberOfRanksThatTheBatchDividesBy) {
  EXPECT_THAT(RefusalOf(kFormat, R"({"train_batch_size": 16, "train_micro_batch_size_per_gpu": 8})"),
              HasSubstr("--set layout.dp=2"));
}

// allreduce_bucket casts the flat fp32 gradient to communication_data_type, which is bf16 where nobody says otherwise.
TEST(ConfigDeepSpeed, Bf16OptimizerSendsBf16AndHasNoBuckets) {
  const std::string head = R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true},
    "data_types": {"grad_accum_dtype": "fp32"}, "zero_optimization": {"stage": 1, "overlap_comm": true,
    "reduce_scatter": true, "reduce_bucket_size": 5e7})";
  const Settings plain = Read(head + "}");
  EXPECT_EQ(TextOf(plain, "strategy"), "deepspeed-bf16");
  EXPECT_EQ(TextOf(plain, "precision.reduce"), "bf16");
  EXPECT_EQ(TextOf(plain, "precision.accumulate"), "fp32");
  EXPECT_FALSE(plain.contains("sync.bucket_elements"));
  EXPECT_EQ(TextOf(Read(head + R"(, "communication_data_type": "fp32"})"), "precision.reduce"), "fp32");
}

TEST(ConfigDeepSpeed, TheCommandLineChangesDtypesOfAll) {
  const Settings settings =
      Read(R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}})", {"precision.params=fp32"});
  EXPECT_EQ(TextOf(settings, "precision.gradients"), "fp32");
}

// What DeepSpeed turns off or on itself, with a warning.
TEST(ConfigDeepSpeed, WhatDeepSpeedCorrectsIsCorrected) {
  const std::string head = R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": )";
  EXPECT_EQ(TextOf(Read(head + R"({"stage": 1, "overlap_comm": true}})", {"layout.pp=2", "accumulation_steps=4"}),
                   "sync.overlap"),
            "false");
  EXPECT_EQ(
      TextOf(Read(head + R"({"stage": 2, "contiguous_gradients": false, "offload_optimizer": {"device": "cpu"}}})"),
             "buffers.contiguous_gradients"),
      "true");
}

// hjson, which DeepSpeed reads.
TEST(ConfigDeepSpeed, JsonMayHaveComments) {
  const Settings settings = Read(
      "{\n  // of the run in May\n  \"train_micro_batch_size_per_gpu\": 2, /* half */\n"
      "  \"bf16\": {\"enabled\": true}, \"url\": \"http://a // b\"\n}\n");
  EXPECT_EQ(TextOf(settings, "micro_batch_size"), "2");
  EXPECT_EQ(Find(settings, "micro_batch_size")->source, "job.json:3");  // lines stay
  EXPECT_EQ(TextOf(Read(R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2,
    // "overlap_comm": true,
    "reduce_bucket_size": 500000000 // half a billion
    }})"),
                   "sync.bucket_elements"),
            "500000000");
  EXPECT_THAT(Refuse("{\"train_micro_batch_size_per_gpu\": 2, // once\n \"train_micro_batch_size_per_gpu\": 4}"),
              HasSubstr("is given twice"));
}

// As json.dump writes them.
TEST(ConfigDeepSpeed, JsonMayEscapeLettersOfOtherPlanes) {
  const std::string text = R"({"train_micro_batch_size_per_gpu": 2, "wandb": {"team": "\ud83d\ude00"}})";
  EXPECT_EQ(TextOf(Read(text), "micro_batch_size"), "2");
  EXPECT_THAT(Refuse(R"({"a": "\ud83d\ude00", "train_micro_batch_size_per_gpu": 2, "a": 1})"),
              HasSubstr("is not valid YAML"));
}

TEST(ConfigDeepSpeed, TooFewSamplesAreSaidToBeTooFew) {
  EXPECT_THAT(Refuse(R"({"train_batch_size": 8, "optimizer": {"type": "AdamW"}})", {"micro_batch_size=4"}),
              HasSubstr("8 samples are fewer than one"));
}

TEST(ConfigDeepSpeed, AFieldThatIsNearlyOneOfThoseThatMatterIsAMistake) {
  EXPECT_THAT(
      Refuse(R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "overlap_com": true}})"),
      HasSubstr("did you mean zero_optimization.overlap_comm?"));
  EXPECT_THAT(Refuse(R"({"train_micro_batch_size_per_gpu": 1, "zero_optimisation": {"stage": 2}})"),
              HasSubstr("did you mean zero_optimization?"));
}

TEST(ConfigDeepSpeed, TheTorchAdamTakesListsAndGradientsAreClippedUnlessToldOtherwise) {
  const std::string head = R"({"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, )";
  EXPECT_EQ(
      TextOf(
          Read(head +
               R"("zero_optimization": {"stage": 1}, "optimizer": {"type": "Adam", "params": {"torch_adam": true}}})"),
          "optimizer_step.kernel"),
      "foreach");
  EXPECT_EQ(TextOf(Read(head + R"("gradient_clipping": 0.5})"), "optimizer_step.clip_norm"), "0.5");
  EXPECT_FALSE(Read(head + R"("gradient_clipping": 0})").contains("optimizer_step.clip_norm"));
  EXPECT_EQ(TextOf(Read(head + R"("steps_per_print": 10})"), "optimizer_step.clip_norm"),
            "1.0");  // since DeepSpeed #8068
}

}  // namespace
}  // namespace tidemark::config_deepspeed_test
