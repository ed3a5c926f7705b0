// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "models/network/network.h"
#include "tests/models/megatron_config.h"
#include "tests/models/sample.h"

namespace tidemark::config_megatron_latent_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kNoRank = "--multi-latent-attention --qk-layernorm --disable-bias-linear ";
const std::string kLatent = std::string(kNoRank) + "--q-lora-rank 96 ";

// Defaults are those of megatron/training/arguments.py.
TEST(ConfigMegatronLatent, ReadsMultiLatentAttention) {
  const auto key = [](const std::string& more, const std::string& name) { return KeyOf(kLatent + more, name); };
  EXPECT_EQ(key("", "network.latent_attention.kv_lora_rank"), "32");
  EXPECT_EQ(key("", "network.latent_attention.rope_head_size"), "64");
  EXPECT_EQ(key("", "network.latent_attention.value_head_size"), "128");
  EXPECT_EQ(key("--kv-channels 64", "network.head_size"), "192") << "128 + 64, whatever kv-channels is";
  EXPECT_EQ(key("", "network.rope"), "true") << "of its own, whatever position-embedding-type is";
  EXPECT_EQ(key("", "network.qk_norm"), "false") << "its norms are those of the latent vectors";
  EXPECT_EQ(key("", "network.kv_heads"), "8") << "as many as heads";
  const std::string all = "--kv-lora-rank 48 --qk-head-dim 40 --qk-pos-emb-head-dim 24 --v-head-dim 56 ";
  EXPECT_EQ(key(all, "network.latent_attention.q_lora_rank"), "96");
  EXPECT_EQ(key(all, "network.latent_attention.kv_lora_rank"), "48");
  EXPECT_EQ(key(all, "network.latent_attention.rope_head_size"), "24");
  EXPECT_EQ(key(all, "network.latent_attention.value_head_size"), "56");
  EXPECT_EQ(key(all, "network.head_size"), "64");
  EXPECT_EQ(key("--rope-type rope --no-rope-fusion", "buffers.fused_rope"), "false");
  const std::string again = "--recompute-granularity selective --recompute-modules mla_up_proj";
  EXPECT_EQ(key(again, "recompute.latent_heads"), "true");
  EXPECT_EQ(key(again, "recompute.attention"), "false");
}

TEST(ConfigMegatronLatent, WithoutItsOptionNothingIsSaidOfIt) {
  EXPECT_EQ(KeyOf("--qk-layernorm", "network.latent_attention.kv_lora_rank"), "(nothing)");
  EXPECT_EQ(KeyOf("--qk-layernorm", "network.qk_norm"), "true");
}

TEST(ConfigMegatronLatent, WhatIsNotModelledIsRefusedByName) {
  for (const auto& [options, reason] : std::vector<std::pair<std::string, std::string>>{
           {"--multi-latent-attention --disable-bias-linear", "add qk-layernorm"},
           {"--multi-latent-attention --qk-layernorm", "add disable-bias-linear"},
           {kNoRank, "normalised a second time"},
           {kLatent + "--add-qkv-bias", "leave out add-qkv-bias"},
           {kLatent + "--rotary-interleaved", "rotary_interleaved does not work"},
           {kLatent + "--qk-pos-emb-head-dim 7", "qk-pos-emb-head-dim: expected an even number"},
           {kLatent + "--kv-lora-rank 0", "kv-lora-rank: expected a whole number"},
           {kLatent + "--v-head-dim 0", "v-head-dim: expected a whole number"},
           {kLatent + "--group-query-attention --num-query-groups 2", "mutually exclusive with multi latent attention"},
           {kLatent + "--mla-down-proj-fusion", "latent vectors that one product makes"},
           {kLatent + "--cache-mla-latents", "inference's"},
           {kLatent + "--rope-type rope", "add no-rope-fusion"},
           {kLatent + "--attention-backend unfused", "attention-backend: multi-latent attention that keeps its scores"},
           {kLatent + "--transformer-impl local", "transformer-impl: multi-latent attention that keeps its scores"},
           {kLatent + "--rope-type mrope", "expected one of"},
           {"--recompute-granularity selective --recompute-modules mla_up_proj", "needs multi-latent-attention"}}) {
    EXPECT_THAT(RefusalOf(kFormat, Least(options), kRanks), HasSubstr(reason)) << options;
  }
}

// As many parameters as transformers 5.24 makes of DeepSeek V3's config.json.
TEST(ConfigMegatronLatent, ReadsTheSampleOfDeepseekV3) {
  const std::vector<StrategyDefaults> strategies = KnownStrategies();
  const Result<Job> job = ParseJob(SampleText("megatron-deepseek-v3.args"), "job.args", {}, strategies);
  ASSERT_TRUE(job.ok()) << job.error().Text();
  EXPECT_EQ(ParameterCount(job->network), 671'026'404'352);
  EXPECT_EQ(job->layout.dp, 128);  // 2,048 / 16
  EXPECT_EQ(job->layout.layers_per_stage.back(), 1);
}

}  // namespace
}  // namespace tidemark::config_megatron_latent_test
