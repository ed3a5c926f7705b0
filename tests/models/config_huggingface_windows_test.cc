// SPDX-License-Identifier: Apache-2.0
// Windows of attention, by class of transformers 5.24 and what a file says.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/models/huggingface_text.h"

namespace tidemark::config_huggingface_windows_test {
namespace {

using ::testing::HasSubstr;

constexpr auto Read = &ReadHuggingFaceText;
constexpr auto ErrorOf = &HuggingFaceErrorOf;

Decoder ReadType(const std::string& type, const std::string& keys = "") {
  return Read("{\"model_type\": \"" + type + "\"" + keys + "}");
}

std::vector<std::int64_t> LayersWithout(const Decoder& d) {
  std::vector<std::int64_t> layers;
  for (std::int64_t layer = 0; layer < d.layers; ++layer) {
    if (d.WindowOf(layer) == 0) {
      layers.push_back(layer);
    }
  }
  return layers;
}

// CONFIG_MAPPING[type]().sliding_window and .layer_types
TEST(HuggingFaceWindows, AreThoseOfEachClassWhereAFileSaysNothing) {
  using Layers = std::vector<std::int64_t>;
  EXPECT_EQ(LayersWithout(ReadType("gemma3_text")), (Layers{5, 11, 17, 23}));
  for (const std::string type : {"olmo3", "exaone4"}) {
    EXPECT_EQ(LayersWithout(ReadType(type)), (Layers{3, 7, 11, 15, 19, 23, 27, 31}));
  }
  EXPECT_EQ(LayersWithout(ReadType("mistral")), Layers());
  for (const std::string type : {"gemma3_text", "olmo3", "exaone4", "mistral"}) {
    EXPECT_EQ(ReadType(type).WindowOf(0), 4096) << type;
  }
  for (const std::string type :
       {"mixtral", "phi3", "starcoder2", "qwen2", "qwen3", "qwen2_moe", "qwen3_moe", "smollm3", "llama", "olmo2"}) {
    const Decoder d = ReadType(type);
    EXPECT_EQ(std::ssize(LayersWithout(d)), d.layers) << type;
  }
}

TEST(HuggingFaceWindows, AreThoseThatAFileSays) {
  EXPECT_EQ(ReadType("phi3", R"(, "sliding_window": 2047)").WindowOf(31), 2047);
  EXPECT_EQ(ReadType("mixtral", R"(, "sliding_window": 4096)").WindowOf(0), 4096);
  EXPECT_EQ(ReadType("mistral", R"(, "sliding_window": null)").sliding_window, 0);
  EXPECT_EQ(ReadType("exaone4", R"(, "sliding_window": null)").sliding_window, 0);
  // Gemma3TextConfig(sliding_window_pattern=3, num_hidden_layers=7).layer_types
  EXPECT_EQ(LayersWithout(ReadType("gemma3_text", R"(, "sliding_window_pattern": 3, "num_hidden_layers": 7)")),
            (std::vector<std::int64_t>{2, 5}));
  EXPECT_EQ(ReadType("gemma3_text", R"(, "use_bidirectional_attention": true)").sliding_window, 0);
  // Olmo3Config(sliding_window_pattern=2, num_hidden_layers=8).layer_types: it has no such key
  EXPECT_EQ(LayersWithout(ReadType("olmo3", R"(, "sliding_window_pattern": 2, "num_hidden_layers": 8)")),
            (std::vector<std::int64_t>{3, 7}));
  EXPECT_EQ(ReadType("exaone4", R"(, "sliding_window_pattern": 1)").sliding_window, 0);
  EXPECT_EQ(ReadType("phi3", R"(, "sliding_window": 2147483647)").sliding_window, 0);  // no sequence is that long
}

TEST(HuggingFaceWindows, AreOfTheLayersThatLayerTypesSays) {
  const std::string two = R"(, "num_hidden_layers": 2, "layer_types": )";
  EXPECT_EQ(LayersWithout(ReadType("olmo3", two + R"(["sliding_attention", "full_attention"])")),
            std::vector<std::int64_t>{1});
  const Decoder all = ReadType("olmo3", two + R"(["sliding_attention", "sliding_attention"])");
  EXPECT_EQ(LayersWithout(all), std::vector<std::int64_t>());
  const Decoder none = ReadType("olmo3", two + R"(["full_attention", "full_attention"])");
  EXPECT_EQ(none.sliding_window, 0);
  EXPECT_THAT(ErrorOf(R"({"model_type": "olmo3")" + two + R"(["full_attention", "sliding_attention"]})"),
              HasSubstr("expected full_attention of each so many-th layer"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "olmo3")" + two + R"(["full_attention"]})"),
              HasSubstr("expected one for each of the 2 layers, found 1"));
  EXPECT_THAT(ErrorOf(R"({"model_type": "olmo3")" + two + R"(["full_attention", "linear_attention"]})"),
              HasSubstr("found 'linear_attention'"));
}

// Qwen2Config(use_sliding_window=True, max_window_layers=...).layer_types
TEST(HuggingFaceWindows, OfQwenAreUsedWhereAFileSaysSo) {
  for (const std::string type : {"qwen2", "qwen3"}) {
    EXPECT_EQ(ReadType(type, R"(, "sliding_window": 4096)").sliding_window, 0);
    const std::string used = R"(, "use_sliding_window": true)";
    const Decoder all = ReadType(type, used + R"(, "max_window_layers": 0)");
    EXPECT_EQ(all.sliding_window, 4096);
    EXPECT_EQ(LayersWithout(all), std::vector<std::int64_t>());
    EXPECT_EQ(ReadType(type, used + R"(, "max_window_layers": 32)").sliding_window, 0);
    EXPECT_THAT(ErrorOf("{\"model_type\": \"" + type + "\"" + used + "}"), HasSubstr("expected 0 or the 32 layers"));
  }
  EXPECT_EQ(ReadType("qwen3_moe", R"(, "use_sliding_window": true)").WindowOf(0), 4096);
  const std::string used = R"(, "use_sliding_window": true)";
  EXPECT_THAT(ErrorOf(R"({"model_type": "qwen2_moe")" + used + "}"), HasSubstr("use_sliding_window"));
  EXPECT_EQ(ReadType("qwen2_moe", used + R"(, "sliding_window": null)").sliding_window, 0);
  EXPECT_EQ(ReadType("smollm3", used).sliding_window, 0);
  EXPECT_THAT(ErrorOf(R"({"model_type": "smollm3")" + used + R"(, "sliding_window": 512})"),
              HasSubstr("use_sliding_window"));
}

}  // namespace
}  // namespace tidemark::config_huggingface_windows_test
