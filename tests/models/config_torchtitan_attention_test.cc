// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <functional>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "tests/models/foreign_config.h"
#include "tests/models/sample.h"

// Multi-latent attention, and layers of which the first have no experts, in what torchtitan saves: DeepSeek V2 Lite and
// the first five layers of V3 (torchtitan/models/deepseek_v3: __init__.py, _16b and _671b).

namespace tidemark::config_torchtitan_attention_test {
namespace {

using ::testing::HasSubstr;

constexpr const char* kFormat = "torchtitan-saved";
constexpr const char* kLite = "torchtitan-saved-deepseek-v3-16b.json";
constexpr const char* kLarge = "torchtitan-saved-deepseek-v3-671b-5-layers.json";
const std::vector<std::string> kRanks = {"layout.dp=64"};

std::string Refusal(const std::string& from, const std::string& to, const char* sample = kLite) {
  return RefusalOf(kFormat, SampleText(sample, from, to), kRanks);
}

TEST(ConfigTorchtitanAttention, WithLatentKeysIsReadFromItsProjections) {
  const Settings settings = MustRead(kFormat, SampleText(kLite), kRanks);
  EXPECT_EQ(TextOf(settings, "network.layers"), "27");
  EXPECT_EQ(TextOf(settings, "network.heads"), "16");
  EXPECT_EQ(TextOf(settings, "network.kv_heads"), "16");
  EXPECT_EQ(TextOf(settings, "network.head_size"), "192");
  EXPECT_EQ(TextOf(settings, "network.latent_attention.kv_lora_rank"), "512");
  EXPECT_EQ(TextOf(settings, "network.latent_attention.q_lora_rank"), "0");
  EXPECT_EQ(TextOf(settings, "network.latent_attention.rope_head_size"), "64");
  EXPECT_EQ(TextOf(settings, "network.latent_attention.value_head_size"), "128");
  EXPECT_EQ(TextOf(settings, "packing.qkv"), "(nothing)");
  EXPECT_EQ(TextOf(settings, "network.ffn"), "10944");
  EXPECT_EQ(TextOf(settings, "network.experts.dense_layers"), "1");
  EXPECT_EQ(TextOf(settings, "network.experts.shared_ffn"), "2816");
  EXPECT_EQ(TextOf(settings, "layout.ep"), "8");
}

TEST(ConfigTorchtitanAttention, WithLatentQueriesHasARankOfTheirs) {
  const Settings settings = MustRead(kFormat, SampleText(kLarge), kRanks);
  EXPECT_EQ(TextOf(settings, "network.latent_attention.q_lora_rank"), "1536");
  EXPECT_EQ(TextOf(settings, "network.experts.dense_layers"), "3");
  EXPECT_EQ(TextOf(settings, "network.layers"), "5");
}

TEST(ConfigTorchtitanAttention, SizesThatContradictEachOtherAreRefused) {
  EXPECT_THAT(Refusal("\"in_features\": 2048, \"out_features\": 3072", "\"in_features\": 2048, \"out_features\": 3000"),
              HasSubstr("layers[0].attention.wq: expected 2048 inputs and 3072 outputs"));
  EXPECT_THAT(Refusal("\"in_features\": 2048, \"out_features\": 576", "\"in_features\": 2048, \"out_features\": 512"),
              HasSubstr("wkv_a: expected 2048 inputs and 576 outputs"));
  EXPECT_THAT(Refusal("\"in_features\": 512, \"out_features\": 4096", "\"in_features\": 512, \"out_features\": 4000"),
              HasSubstr("wkv_b: expected 512 inputs and 4096 outputs"));
  EXPECT_THAT(Refusal("\"v_head_dim\": 128", "\"v_head_dim\": 64"), HasSubstr("wkv_b: expected 512 inputs and 3072"));
  EXPECT_THAT(Refusal("\"normalized_shape\": 512", "\"normalized_shape\": 500"), HasSubstr("kv_norm"));
  EXPECT_THAT(Refusal("\"normalized_shape\": 1536", "\"normalized_shape\": 1", kLarge), HasSubstr("q_norm"));
  EXPECT_THAT(Refusal("\"in_features\": 1536", "\"in_features\": 1535", kLarge), HasSubstr("wq_b: expected 1536"));
  EXPECT_THAT(Refusal("\"q_lora_rank\": 1536", "\"q_lora_rank\": 0", kLarge), HasSubstr("attention.wq"));
  EXPECT_THAT(Refusal("\"wq\": null", "\"wq\": {}", kLarge), HasSubstr("attention.wq: stands beside q_lora_rank"));
  EXPECT_THAT(Refusal("\"dim\": 64", "\"dim\": 32"), HasSubstr("attention.rope.dim: expected 64"));
  EXPECT_THAT(Refusal("\"dim\": 64", "\"backend\": \"x\", \"dim\": 64"), HasSubstr("attention.rope.backend"));
}

/// Five layers of V3, one line each in the sample, with others in their place.
std::string WithLayers(const std::function<void(std::vector<std::string>& layers)>& change) {
  const std::string text = SampleText(kLarge);
  const std::size_t begin = text.find('\n', text.find("\"layers\": [")) + 1, end = text.find("\n      ]", begin);
  std::istringstream lines(text.substr(begin, end - begin));
  std::vector<std::string> layers;
  for (std::string line; std::getline(lines, line);) {
    layers.push_back(line.ends_with(',') ? line.substr(0, line.size() - 1) : line);
  }
  EXPECT_EQ(layers.size(), 5U);
  change(layers);
  return text.substr(0, begin) + fmt::format("{}", fmt::join(layers, ",\n")) + text.substr(end);
}

TEST(ConfigTorchtitanAttention, LayersThatAreAnotherSayInWhat) {
  EXPECT_THAT(RefusalOf(kFormat, WithLayers([](auto& layers) { layers.back() = layers.front(); }), kRanks),
              HasSubstr("layer 4 is another than layer 3 in its experts"));
  const auto widen = [](auto& layers) {
    layers.front() = std::regex_replace(layers.front(), std::regex("18432"), "18433");
  };
  EXPECT_THAT(RefusalOf(kFormat, WithLayers(widen), kRanks),
              HasSubstr("layer 1 is another than layer 0 in its feed-forward part"));
}

TEST(ConfigTorchtitanAttention, WithLatentKeysIsOnOneTensorParallelRank) {
  const std::string dense = WithLayers([](auto& layers) { layers.resize(3); });
  MustRead(kFormat, dense, kRanks);
  EXPECT_THAT(RefusalOf(kFormat, dense, {"layout.dp=64", "layout.tp=2"}),
              HasSubstr("multi-latent attention beside tensor-parallel ranks is not supported"));
}

}  // namespace
}  // namespace tidemark::config_torchtitan_attention_test
