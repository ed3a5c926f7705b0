// SPDX-License-Identifier: Apache-2.0
// Model types whose layers differ in their norms, and those that came with them.
#include <gtest/gtest.h>

#include <string>

#include "tests/models/huggingface_text.h"

namespace tidemark::config_huggingface_norms_test {
namespace {

constexpr auto Read = &ReadHuggingFaceText;
constexpr auto ErrorOf = &HuggingFaceErrorOf;

/// Parameters of a model of which a file says nothing but its type.
std::int64_t CountOf(const std::string& type) {
  const auto network = ReadHuggingFaceConfig("{\"model_type\": \"" + type + "\"}", "config.json");
  EXPECT_TRUE(network.ok()) << network.error().Text();
  return network.ok() ? ParameterCount(*network) : 0;
}

// What transformers 5.24 makes of the classes' defaults (AutoModelForCausalLM.from_config, on the meta device).
TEST(HuggingFaceNorms, CountsWhatTransformersMakesOfEachClass) {
  EXPECT_EQ(CountOf("ernie4_5"), 360'748'032);
  EXPECT_EQ(CountOf("exaone4"), 9'429'069'824);
  EXPECT_EQ(CountOf("gemma"), 8'537'680'896);
  EXPECT_EQ(CountOf("gemma3_text"), 2'628'658'432);
  EXPECT_EQ(CountOf("glm4"), 9'400'279'040);
  EXPECT_EQ(CountOf("granite"), 6'738'415'616);
  EXPECT_EQ(CountOf("minimax_m2"), 228'689'748'992);
  EXPECT_EQ(CountOf("olmo2"), 6'888'624'128);
  EXPECT_EQ(CountOf("olmo3"), 6'888'624'128);
  EXPECT_EQ(CountOf("olmoe"), 13'361'612'800);
  EXPECT_EQ(CountOf("smollm3"), 3'075'098'624);
  EXPECT_EQ(CountOf("starcoder2"), 3'030'371'328);
}

TEST(HuggingFaceNorms, KnowsWhichNormsEachClassHas) {
  using Placement = Decoder::NormPlacement;
  for (const std::string type : {"olmo2", "olmo3"}) {
    const Decoder olmo = Read("{\"model_type\": \"" + type + "\"}");
    EXPECT_EQ(olmo.norm_placement, Placement::outputs);
    EXPECT_EQ(olmo.qk_norm_over, Decoder::QkNormOver::all_heads);
    EXPECT_TRUE(olmo.qk_norm);
  }
  const Decoder exaone = Read(R"({"model_type": "exaone4"})");
  EXPECT_EQ(exaone.norm_placement, Placement::outputs);
  EXPECT_EQ(exaone.qk_norm_over, Decoder::QkNormOver::head);
  EXPECT_TRUE(exaone.qk_norm);
  const Decoder gemma = Read(R"({"model_type": "gemma3_text"})");
  EXPECT_EQ(gemma.norm_placement, Placement::both);
  EXPECT_EQ(gemma.head_size, 256);
  EXPECT_TRUE(gemma.qk_norm);
  EXPECT_TRUE(gemma.tied_embeddings);
  const Decoder glm = Read(R"({"model_type": "glm4"})");
  EXPECT_EQ(glm.norm_placement, Placement::both);
  EXPECT_FALSE(glm.qk_norm);
  EXPECT_TRUE(glm.qkv_bias);
  EXPECT_FALSE(Read(R"({"model_type": "glm4", "attention_bias": false})").qkv_bias);
  for (const std::string type : {"minimax_m2", "olmoe"}) {
    const Decoder experts = Read("{\"model_type\": \"" + type + "\"}");
    EXPECT_EQ(experts.qk_norm_over, Decoder::QkNormOver::all_heads);
    EXPECT_EQ(experts.experts.per_token, 8);
  }
  EXPECT_EQ(Read(R"({"model_type": "olmoe", "num_local_experts": 16})").experts.count, 16);
  EXPECT_EQ(Read(R"({"model_type": "minimax_m2", "num_experts": 16})").experts.count, 16);
  for (const std::string type : {"gemma", "smollm3", "llama", "olmoe", "minimax_m2", "granite"}) {
    EXPECT_EQ(Read("{\"model_type\": \"" + type + "\"}").norm_placement, Placement::inputs) << type;
  }
}

TEST(HuggingFaceNorms, RefusesWhatTheseClassesMayHaveBesides) {
  for (const std::string cap : {"final_logit_softcapping", "attn_logit_softcapping"}) {
    EXPECT_NE(ErrorOf("{\"model_type\": \"gemma3_text\", \"" + cap + "\": 30.0}").find(cap + ": expected null"),
              std::string::npos);
    EXPECT_EQ(Read("{\"model_type\": \"gemma3_text\", \"" + cap + "\": null}").layers, 26);
  }
  for (const std::string type : {"minimax_m2", "olmoe", "qwen3_moe"}) {
    const std::string keys = R"(", "num_experts": 64, "num_local_experts": 16})";
    EXPECT_NE(ErrorOf("{\"model_type\": \"" + type + keys).find("num_local_experts: expected the same"),
              std::string::npos)
        << type;
  }
  EXPECT_NE(ErrorOf(R"({"model_type": "ernie4_5", "head_dim": null, "num_attention_heads": 2048})")
                .find("num_attention_heads: expected at most"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model_type": "olmoe", "clip_qkv": 8})").find("clip_qkv: expected null"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model_type": "starcoder2", "residual_dropout": 0.1})").find("embedding_dropout: expected"),
            std::string::npos);
  EXPECT_EQ(Read(R"({"model_type": "starcoder2", "residual_dropout": 0.1, "embedding_dropout": 0.1})").dropout, 0.1);
  EXPECT_FALSE(Read(R"({"model_type": "starcoder2", "use_bias": false})").linear_bias);
  EXPECT_EQ(Read(R"({"model_type": "ernie4_5", "head_dim": null})").head_size, 64);
  for (const std::string type : {"gemma", "gemma3_text", "granite", "olmo2", "olmoe", "smollm3"}) {
    EXPECT_NE(ErrorOf("{\"model_type\": \"" + type + "\", \"attention_bias\": true}").find("attention_bias: expected"),
              std::string::npos)
        << type;
  }
}

TEST(HuggingFaceNorms, SaysWhereKeyValueHeadsComeFromThatHeadsCannotShare) {
  const std::string given = ErrorOf("{\"model_type\": \"llama\",\n\"num_key_value_heads\": 5}");
  EXPECT_NE(given.find("dir/config.json:2: num_key_value_heads: expected 32 attention heads to be a multiple of 5"),
            std::string::npos)
      << given;
  const std::string missing = ErrorOf("{\"model_type\": \"gemma\",\n\"num_attention_heads\": 4}");
  EXPECT_NE(missing.find("dir/config.json:2: num_attention_heads: expected 4 attention heads"), std::string::npos)
      << missing;
  EXPECT_NE(missing.find("where num_key_value_heads is not said"), std::string::npos) << missing;
}

TEST(HuggingFaceNorms, TakesNullForFalseWhereAClassDoes) {
  EXPECT_FALSE(Read(R"({"model_type": "ernie4_5", "use_bias": null})").qkv_bias);
  EXPECT_TRUE(Read(R"({"model_type": "ernie4_5", "use_bias": true})").linear_bias);
  for (const std::string type : {"gemma", "gemma3_text"}) {
    const std::string begin = "{\"model_type\": \"" + type + "\"";
    EXPECT_TRUE(Read(begin + "}").causal) << type;
    EXPECT_TRUE(Read(begin + ", \"use_bidirectional_attention\": null}").causal) << type;
    EXPECT_FALSE(Read(begin + ", \"use_bidirectional_attention\": true}").causal) << type;
  }
}

// The RMSNorm of each class of transformers (modeling_<type>.py): x in fp32 times the weight, then cast down, or cast
// down before.
TEST(HuggingFaceNorms, KnowsInWhatEachClassMultipliesByTheWeight) {
  const auto norms = [](const std::string& type) {
    return ReadHuggingFaceConfig("{\"model_type\": \"" + type + "\"}", "config.json")->eager_norms;
  };
  for (const std::string type : {"gemma", "gemma3_text", "olmo2", "olmo3"}) {
    EXPECT_EQ(norms(type), Decoder::NormKernel::eager_fp32_weight) << type;
  }
  for (const std::string type : {"llama", "qwen3", "olmoe", "glm4", "exaone4", "minimax_m2", "smollm3", "granite"}) {
    EXPECT_EQ(norms(type), Decoder::NormKernel::eager) << type;
  }
}

// Models that see images as well keep their language model's keys in a part of the file.
TEST(HuggingFaceNorms, SaysWhereTheLanguageModelOfALargerOneIs) {
  const std::string error = ErrorOf(R"({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text"}})");
  EXPECT_NE(error.find("found 'gemma3'"), std::string::npos) << error;
  EXPECT_NE(error.find("its text_config, as a file of its own"), std::string::npos) << error;
}

}  // namespace
}  // namespace tidemark::config_huggingface_norms_test
