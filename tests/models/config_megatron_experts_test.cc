// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <string>
#include <utility>
#include <vector>

#include "models/network/network.h"
#include "tests/models/megatron_config.h"
#include "tests/models/sample.h"

namespace tidemark::config_megatron_experts_test {
namespace {

using ::testing::HasSubstr;

TEST(ConfigMegatronExperts, WhatIsNotModelledIsRefusedByName) {
  EXPECT_THAT(RefusalOf(kFormat, Least("--num-experts 8"), kRanks), HasSubstr("whose linear layers have biases"));
  for (const auto& [option, reason] : std::vector<std::pair<std::string, std::string>>{
           {"--moe-expert-capacity-factor 1.0", "drop tokens"},
           {"--moe-token-dispatcher-type flex", "'flex' is not supported"},
           {"--moe-layer-freq ([0,1]*6)", "some have experts"},
           {"--moe-layer-freq 2", "some have experts"},
           {"--moe-layer-freq ([0]*12)", "no layer has experts"},
           {"--moe-layer-freq ([1]*20)", "a list of 20, for 12 layers"},
           {"--moe-layer-freq [2]*12", "a list of 0 and 1"},
           {"--moe-layer-recompute", "recompute-modules moe"},
           {"--moe-router-load-balancing-type foo", "expected one of"},
           {"--recompute-granularity selective --recompute-modules moe_act", "needs moe-grouped-gemm"},
           {"--moe-layer-freq [0]*3+[1]*9 --recompute-granularity selective "
            "--recompute-modules mlp",
            "in some layers only"},
           {"--moe-layer-freq [0]*3+[1]*9 --recompute-granularity selective "
            "--recompute-modules moe mlp moe_act --moe-grouped-gemm",
            "in some layers only"}}) {
    EXPECT_THAT(RefusalOf(kFormat, Least("--num-experts 8 --disable-bias-linear " + option), kRanks), HasSubstr(reason))
        << option;
  }
}

TEST(ConfigMegatronExperts, ReadsExperts) {
  const std::string least = "--num-experts 8 --disable-bias-linear ";
  EXPECT_EQ(KeyOf(least, "network.experts.count"), "8");
  EXPECT_EQ(KeyOf(least, "network.experts.per_token"), "2");
  EXPECT_EQ(KeyOf(least, "network.experts.ffn"), "2048") << "the feed-forward part's, 4 h";
  EXPECT_EQ(KeyOf(least + "--moe-ffn-hidden-size 1408", "network.experts.ffn"), "1408");
  EXPECT_EQ(KeyOf(least, "network.experts.dispatcher"), "all-gather");
  EXPECT_EQ(KeyOf(least + "--moe-token-dispatcher-type alltoall", "network.experts.dispatcher"), "all-to-all");
  EXPECT_EQ(KeyOf(least, "network.experts.kernel"), "sequential");
  EXPECT_EQ(KeyOf(least + "--moe-grouped-gemm", "network.experts.kernel"), "grouped");
  EXPECT_EQ(KeyOf(least + "--moe-router-dtype fp32", "network.experts.router_fp32"), "true");
  EXPECT_EQ(KeyOf(least + "--moe-aux-loss-coeff 1e-2", "network.experts.balancing_loss"), "true");
  const std::string sinkhorn = "--moe-router-load-balancing-type sinkhorn --moe-aux-loss-coeff 0.01";
  EXPECT_EQ(KeyOf(least + sinkhorn, "network.experts.balancing_loss"), "false");
  EXPECT_EQ(KeyOf(least + "--moe-shared-expert-intermediate-size 64", "network.experts.shared_ffn"), "64");
  EXPECT_EQ(KeyOf(least + "--expert-model-parallel-size 4", "layout.ep"), "4");
  EXPECT_EQ(KeyOf(least + "--expert-tensor-parallel-size 1", "layout.etp"), "1");
  EXPECT_EQ(KeyOf(least, "network.experts.dense_layers"), "0");
  EXPECT_EQ(KeyOf(least + "--moe-layer-freq ([1]*12)", "network.experts.dense_layers"), "0");
  const std::string mixed = least + "--moe-layer-freq [0]*3+[1]*9 ";
  EXPECT_EQ(KeyOf(mixed, "network.experts.dense_layers"), "3");
  EXPECT_EQ(KeyOf(least + "--moe-layer-freq ([0] * 3 + [1] * 9)", "network.experts.dense_layers"), "3")
      << "as echo prints what was quoted";
  const std::string modules = "--recompute-granularity selective --recompute-modules ";
  EXPECT_EQ(KeyOf(mixed + modules + "moe mlp", "recompute.feed_forward"), "true");
  EXPECT_EQ(KeyOf(mixed + modules + "core_attn", "recompute.feed_forward"), "false");
  EXPECT_EQ(
      KeyOf("--num-experts 0 --recompute-granularity selective --recompute-modules mlp", "recompute.feed_forward"),
      "true");
  EXPECT_THAT(RefusalOf(kFormat, Least("--expert-model-parallel-size 2"), kRanks), HasSubstr("must be non None"));
  EXPECT_EQ(KeyOf(least + "--moe-grouped-gemm --recompute-granularity selective --recompute-modules moe_act",
                  "recompute.activation"),
            "true");
  EXPECT_EQ(KeyOf(least + "--recompute-granularity selective --recompute-modules moe", "recompute.feed_forward"),
            "true");
}

// As many parameters as transformers 5.24 makes of the config.json of zai-org/GLM-4.5-Air.
TEST(ConfigMegatronExperts, ReadsTheSampleWhoseFirstLayerHasNoExperts) {
  const std::vector<StrategyDefaults> strategies = KnownStrategies();
  const Result<Job> job = ParseJob(SampleText("megatron-glm-4.5-air.args"), "job.args", {}, strategies);
  ASSERT_TRUE(job.ok()) << job.error().Text();
  EXPECT_EQ(ParameterCount(job->network), 106'852'245'504);
  EXPECT_EQ(ExpertsOf(job->network)->dense_layers, 1);
  EXPECT_EQ(job->layout.dp, 16);  // 64 / (2 * 2)
}

}  // namespace
}  // namespace tidemark::config_megatron_experts_test
