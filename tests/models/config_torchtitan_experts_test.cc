// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "tests/models/foreign_config.h"
#include "tests/models/sample.h"

namespace tidemark::config_torchtitan_experts_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kFormat = "torchtitan-saved";
constexpr const char* kSample = "torchtitan-saved-qwen3-30b-a3b.json";
const std::vector<std::string> kEight = {"layout.dp=8"};

Settings Read(const std::string& from, const std::string& to, const std::vector<std::string>& set = kEight) {
  return MustRead(kFormat, SampleText(kSample, from, to), set);
}
std::string Refusal(const std::string& from, const std::string& to, const std::vector<std::string>& set = kEight) {
  return RefusalOf(kFormat, SampleText(kSample, from, to), set);
}

/// torchtitan/models/qwen3: config_registry.py, qwen3_30b_a3b; __init__.py, _30b_a3b.
TEST(ConfigTorchtitanExperts, AreReadFromTheirModules) {
  const Settings settings = MustRead(kFormat, SampleText(kSample), kEight);
  EXPECT_EQ(TextOf(settings, "network.experts.count"), "128");
  EXPECT_EQ(TextOf(settings, "network.experts.per_token"), "8");
  EXPECT_EQ(TextOf(settings, "network.experts.ffn"), "768");
  EXPECT_EQ(TextOf(settings, "network.experts.shared_ffn"), "0");
  EXPECT_EQ(TextOf(settings, "network.experts.layer"), "torchtitan");
  EXPECT_EQ(TextOf(settings, "network.experts.router_fp32"), "true");
  EXPECT_EQ(TextOf(settings, "network.ffn"), "(nothing)");
  EXPECT_EQ(TextOf(settings, "network.qk_norm"), "true");
  EXPECT_EQ(TextOf(settings, "network.rotary_table"), "elements");
  EXPECT_EQ(TextOf(settings, "recompute.policy"), "full");
}

// feed_forward.py's three linear layers, beside the others in every layer.
TEST(ConfigTorchtitanExperts, SharedOnesHaveAWidthOfTheirOwn) {
  const std::string text = SampleText(kSample), none = "\"shared_experts\": null";
  const std::string shared =
      "\"shared_experts\": {\"w1\": {\"in_features\": 2048, \"out_features\": 96, \"bias\": false}, \"w2\": "
      "{\"in_features\": 96, \"out_features\": 2048, \"bias\": false}, \"w3\": {\"in_features\": 2048, "
      "\"out_features\": 96, \"bias\": false}}";
  std::string all;
  for (std::size_t at = 0, next = 0; at < text.size(); at = next + none.size()) {
    next = text.find(none, at);
    all += text.substr(at, next - at);
    if (next == std::string::npos) {
      break;
    }
    all += shared;
  }
  EXPECT_EQ(TextOf(MustRead(kFormat, all, kEight), "network.experts.shared_ffn"), "96");
  EXPECT_THAT(Refusal(none, shared), HasSubstr("is another than layer 0 in its experts"));
}

// With them come a layer that is gathered ahead, and of operations that are kept one by one messages that are not.
TEST(ConfigTorchtitanExperts, AreDividedOverRanks) {
  const Settings divided = Read("\"expert_parallel_degree\": 1", "\"expert_parallel_degree\": 4", {"layout.dp=8"});
  EXPECT_EQ(TextOf(divided, "layout.ep"), "4");
  EXPECT_EQ(TextOf(divided, "shard.prefetch_forward"), "1");
  const Settings again = Read("\"expert_parallel_degree\": 1", "\"expert_parallel_degree\": 4",
                              {"layout.dp=8", "recompute.policy=per_op"});
  EXPECT_EQ(TextOf(again, "recompute.collectives"), "true");
  const Settings whole = Read("\"expert_parallel_degree\": 1", "\"expert_parallel_degree\": 4",
                              {"layout.dp=8", "layout.ep=1", "recompute.policy=per_op"});
  EXPECT_EQ(TextOf(whole, "shard.prefetch_forward"), "(nothing)");
  EXPECT_EQ(TextOf(whole, "recompute.collectives"), "(nothing)");
  EXPECT_EQ(TextOf(Read("\"expert_parallel_degree\": 1", "\"expert_parallel_degree\": 4",
                        {"layout.dp=8", "strategy=megatron-dist-opt", "optimizer_step.kernel=fused"}),
                   "layout.ep"),
            "4");
  EXPECT_THAT(Refusal("\"expert_parallel_degree\": 1", "\"expert_parallel_degree\": \"x\""),
              HasSubstr("parallelism.expert_parallel_degree: expected a whole number"));
  EXPECT_THAT(RefusalOf(kFormat, SampleText(kSample), {"layout.dp=8", "layout.tp=2"}), HasSubstr("layout.tp: experts"));
  EXPECT_THAT(Refusal("\"tensor_parallel_degree\": 1", "\"tensor_parallel_degree\": 2"),
              HasSubstr("experts beside tensor-parallel ranks"));
  Read("\"tensor_parallel_degree\": 1", "\"tensor_parallel_degree\": 2", {"layout.dp=8", "layout.tp=1"});  // the hint
}

TEST(ConfigTorchtitanExperts, OfOtherKindsAreRefusedByName) {
  EXPECT_THAT(Refusal("\"router\": {", "\"a_router\": {"), HasSubstr("moe.a_router: belongs to a kind of module"));
  EXPECT_THAT(Refusal("\"token_dispatcher\": {", "\"token_dispatcher\": {\"num_max_tokens_per_rank\": 4096, "),
              HasSubstr("routed_experts.token_dispatcher: dispatchers with buffers of their own"));
  EXPECT_THAT(Refusal("\"token_dispatcher\": {", "\"token_dispatcher\": {\"pad_multiple\": 16, "),
              HasSubstr("token_dispatcher.pad_multiple: belongs to a kind of module"));
  EXPECT_THAT(Refusal("\"inner_experts\": {", "\"inner_experts\": {\"swiglu_limit\": 7.0, "),
              HasSubstr("inner_experts.swiglu_limit: belongs to a kind of module"));
  EXPECT_THAT(Refusal("\"out_features\": 128, \"bias\": false", "\"out_features\": 128, \"bias\": true"),
              HasSubstr("router.gate: has a bias"));
}

// In their place, not beside it.
TEST(ConfigTorchtitanExperts, StandAlone) {
  EXPECT_THAT(Refusal("\"feed_forward\": null", "\"feed_forward\": {}"), HasSubstr("feed_forward: stands beside moe"));
}

// Of a gate whose output is kept, other products would be done again.
TEST(ConfigTorchtitanExperts, HaveTheirGateDoneAgainWhereOperationsAreKept) {
  const std::string forced = "\"force_recompute_mm_shapes_by_fqns\": ";
  EXPECT_THAT(Refusal("\"determinism_check\": \"default\",", "\"determinism_check\": \"default\", " + forced + "[],"),
              HasSubstr("set it to [\"moe.router.gate\"], the default"));
  EXPECT_EQ(TextOf(Read("\"determinism_check\": \"default\",",
                        "\"determinism_check\": \"default\", " + forced + "[\"moe.router.gate\"],"),
                   "recompute.policy"),
            "per_op");
}

TEST(ConfigTorchtitanExperts, SizesThatContradictEachOtherAreRefused) {
  EXPECT_THAT(Refusal("\"out_features\": 128, \"bias\"", "\"out_features\": 64, \"bias\""),
              HasSubstr("gate: expected 2048 inputs and 128 outputs"));
  EXPECT_THAT(Refusal("\"hidden_dim\": 768, \"num_experts\": 128", "\"hidden_dim\": 768, \"num_experts\": 64"),
              HasSubstr("inner_experts.num_experts: expected 128, as the rest of the network has it, found 64"));
  EXPECT_THAT(Refusal("\"n_heads\": 32, \"n_kv_heads\": 4, \"wqkv\"", "\"n_heads\": 16, \"n_kv_heads\": 4, \"wqkv\""),
              HasSubstr("qkv_linear.n_heads: expected 32"));
  EXPECT_THAT(Refusal("\"bias\": false", "\"bias\": 3"), HasSubstr("bias: expected true or false, found '3'"));
  EXPECT_THAT(Refusal("\"num_experts\": 128, \"top_k\": 8", "\"num_experts\": 128, \"top_k\": 4"),
              HasSubstr("token_dispatcher.top_k: expected 8"));
}

}  // namespace
}  // namespace tidemark::config_torchtitan_experts_test
