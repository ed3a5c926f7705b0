// SPDX-License-Identifier: Apache-2.0
#include "models/configs/config_huggingface.h"

#include <gtest/gtest.h>

#include <string>

#include "tests/models/huggingface_text.h"

namespace tidemark::config_huggingface_test {
namespace {

constexpr auto Read = &ReadHuggingFaceText;
constexpr auto ErrorOf = &HuggingFaceErrorOf;

TEST(HuggingFaceConfig, ReadsTheDropoutOfAttention) {
  EXPECT_EQ(Read(R"({"model_type": "gpt2", "attn_pdrop": 0.25})").attention_dropout, 0.25);
  for (const std::string type : {"llama", "mistral", "qwen2", "gpt_neox", "opt"}) {
    EXPECT_EQ(Read("{\"model_type\": \"" + type + "\"}").attention_dropout, 0) << type;
    EXPECT_EQ(Read("{\"model_type\": \"" + type + "\", \"attention_dropout\": 0.25}").attention_dropout, 0.25) << type;
  }
}

// The defaults below are those of the classes in transformers' src/transformers/models/<type>/configuration_<type>.py.

TEST(HuggingFaceConfig, GivesEachModelTypeTheDefaultsOfItsOwnClass) {
  const Decoder llama = Read(R"({"model_type": "llama"})");
  EXPECT_EQ(llama.ffn, 11008);
  EXPECT_EQ(llama.kv_heads, 32);
  EXPECT_FALSE(llama.qkv_bias);
  EXPECT_FALSE(llama.tied_embeddings);

  const Decoder mistral = Read(R"({"model_type": "mistral"})");
  EXPECT_EQ(mistral.ffn, 14336);
  EXPECT_EQ(mistral.kv_heads, 8);

  const Decoder qwen2 = Read(R"({"model_type": "qwen2"})");
  EXPECT_EQ(qwen2.ffn, 22016);
  EXPECT_EQ(qwen2.vocabulary, 151936);
  EXPECT_TRUE(qwen2.qkv_bias);
  EXPECT_FALSE(qwen2.linear_bias);
  EXPECT_FALSE(qwen2.qk_norm);

  const Decoder qwen3 = Read(R"({"model_type": "qwen3", "hidden_size": 2048})");
  EXPECT_EQ(qwen3.ffn, 22016);
  EXPECT_EQ(qwen3.kv_heads, 32);
  EXPECT_EQ(qwen3.head_size, 128);  // whatever the hidden size is
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
  EXPECT_NE(ErrorOf(R"({"model_type": "qwen3", "attention_bias": true})").find("attention_bias"), std::string::npos);

  const Decoder gpt2 = Read(R"({"model_type": "gpt2"})");
  EXPECT_EQ(gpt2.ffn, 3072);
  EXPECT_EQ(gpt2.positions, 1024);
  EXPECT_EQ(gpt2.dropout, 0.1);
  EXPECT_EQ(gpt2.attention_dropout, 0.1);
  EXPECT_TRUE(gpt2.tied_embeddings);
  EXPECT_FALSE(gpt2.rope);

  const Decoder neox = Read(R"({"model_type": "gpt_neox"})");
  EXPECT_EQ(neox.vocabulary, 50432);
  EXPECT_TRUE(neox.parallel_residual);
  EXPECT_TRUE(neox.rope);
  EXPECT_TRUE(neox.qkv_views);
  EXPECT_EQ(neox.positions, 0);
  EXPECT_FALSE(neox.tied_embeddings);

  const Decoder phi3 = Read(R"({"model_type": "phi3"})");
  EXPECT_EQ(phi3.hidden, 3072);
  EXPECT_EQ(phi3.ffn, 8192);
  EXPECT_EQ(phi3.layers, 32);
  EXPECT_EQ(phi3.kv_heads, 32);
  EXPECT_EQ(phi3.head_size, 96);
  EXPECT_EQ(phi3.vocabulary, 32064);
  EXPECT_TRUE(phi3.qkv_views);
  EXPECT_FALSE(phi3.tied_embeddings);

  const Decoder opt = Read(R"({"model_type": "opt"})");
  EXPECT_EQ(opt.hidden, 768);
  EXPECT_EQ(opt.positions, 2050);  // two rows before the first position
  EXPECT_TRUE(opt.relu);
  EXPECT_TRUE(opt.tied_embeddings);
}

// transformers, configuration_mixtral.py, configuration_qwen2_moe.py and configuration_qwen3_moe.py.
TEST(HuggingFaceConfig, ReadsExperts) {
  const Decoder mixtral = Read(R"({"model_type": "mixtral"})");
  EXPECT_EQ(mixtral.experts.count, 8);
  EXPECT_EQ(mixtral.experts.per_token, 2);
  EXPECT_EQ(mixtral.experts.ffn, 14336);
  EXPECT_EQ(mixtral.experts.shared_ffn, 0);
  EXPECT_FALSE(mixtral.experts.balancing_loss);
  EXPECT_TRUE(Read(R"({"model_type": "mixtral", "output_router_logits": true})").experts.balancing_loss);
  const Decoder qwen = Read(R"({"model_type": "qwen2_moe", "mlp_only_layers": []})");
  EXPECT_EQ(qwen.experts.count, 60);
  EXPECT_EQ(qwen.experts.per_token, 4);
  EXPECT_EQ(qwen.experts.ffn, 1408);
  EXPECT_EQ(qwen.experts.shared_ffn, 5632);
  EXPECT_TRUE(qwen.experts.shared_gate);
  EXPECT_TRUE(qwen.qkv_bias);
  const Decoder qwen3 = Read(R"({"model_type": "qwen3_moe", "mlp_only_layers": []})");
  EXPECT_EQ(qwen3.experts.count, 128);
  EXPECT_EQ(Read(R"({"model_type": "qwen3_moe", "num_local_experts": 64})").experts.count, 64);
  EXPECT_EQ(Read(R"({"model_type": "qwen3_moe", "num_experts": 32})").experts.count, 32);
  EXPECT_NE(ErrorOf(R"({"model_type": "qwen3_moe", "num_experts": 32, "num_local_experts": 64})").find("the same as"),
            std::string::npos);
  EXPECT_EQ(qwen3.experts.per_token, 8);
  EXPECT_EQ(qwen3.experts.ffn, 768);
  EXPECT_EQ(qwen3.experts.shared_ffn, 0);
  EXPECT_EQ(qwen3.heads, 32);
  EXPECT_EQ(qwen3.head_size, 64);  // 2048 / 32: Qwen3MoeConfig has no head_dim of its own
  EXPECT_EQ(qwen3.kv_heads, 4);
  EXPECT_TRUE(qwen3.qk_norm);
  EXPECT_FALSE(qwen3.qkv_bias);
  for (const std::string type : {"qwen2_moe", "qwen3_moe"}) {
    EXPECT_NE(ErrorOf("{\"model_type\": \"" + type + "\", \"decoder_sparse_step\": 2}").find("some have experts"),
              std::string::npos);
  }
  EXPECT_EQ(Read(R"({"model_type": "qwen3_moe", "mlp_only_layers": [1, 0]})").experts.dense_layers, 2);
  for (const char* other : {"[1]", "[0, 2]", "[23]"}) {
    EXPECT_NE(
        ErrorOf(R"({"model_type": "qwen2_moe", "mlp_only_layers": )" + std::string(other) + "}").find("first layers"),
        std::string::npos)
        << other;
  }
  EXPECT_NE(ErrorOf(R"({"model_type": "qwen2_moe", "mlp_only_layers": ["0"]})").find("a list of numbers from 0 on"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model_type": "qwen2_moe", "num_hidden_layers": 2, "mlp_only_layers": [0, 1]})").find("fewer"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model_type": "mixtral", "num_experts_per_tok": 9})").find("at most"), std::string::npos);
}

// transformers 5.24, configuration_glm4_moe.py and modeling_glm4_moe.py.
TEST(HuggingFaceConfig, ReadsExpertsBehindDenseLayers) {
  const Decoder air = Read(R"({"model_type": "glm4_moe"})");
  EXPECT_EQ(air.layers, 46);
  EXPECT_EQ(air.ffn, 10944);
  EXPECT_EQ(air.heads, 96);
  EXPECT_EQ(air.kv_heads, 8);
  EXPECT_EQ(air.head_size, 42);  // 4096 / 96, rounded down: Glm4MoeConfig has no head_dim of its own
  EXPECT_EQ(air.vocabulary, 151552);
  EXPECT_FALSE(air.qkv_bias);
  EXPECT_FALSE(air.qk_norm);
  EXPECT_EQ(air.experts.count, 128);
  EXPECT_EQ(air.experts.per_token, 8);
  EXPECT_EQ(air.experts.ffn, 1408);
  EXPECT_EQ(air.experts.shared_ffn, 1408);
  EXPECT_FALSE(air.experts.shared_gate);
  EXPECT_FALSE(Read(R"({"model_type": "glm4_moe", "output_router_logits": true})").experts.balancing_loss);
  EXPECT_TRUE(air.experts.router_fp32);
  EXPECT_EQ(air.experts.dense_layers, 1);
  const Decoder other = Read(R"({"model_type": "glm4_moe", "first_k_dense_replace": 3, "n_shared_experts": 2,
                                 "use_qk_norm": true, "attention_bias": true})");
  EXPECT_EQ(other.experts.dense_layers, 3);
  EXPECT_EQ(other.experts.shared_ffn, 2816);
  EXPECT_TRUE(other.qk_norm);
  EXPECT_TRUE(other.qkv_bias);
  EXPECT_FALSE(other.linear_bias);
  EXPECT_NE(ErrorOf(R"({"model_type": "glm4_moe", "num_hidden_layers": 3, "first_k_dense_replace": 3})").find("fewer"),
            std::string::npos);
}

// transformers 5.24, configuration_deepseek_v3.py and modeling_deepseek_v3.py.
TEST(HuggingFaceConfig, ReadsMultiLatentAttention) {
  for (const char* type : {"deepseek_v3", "kimi_k2"}) {
    const Decoder d = Read(std::string(R"({"model_type": ")") + type + R"("})");
    EXPECT_EQ(d.hidden, 7168);
    EXPECT_EQ(d.layers, 61);
    EXPECT_EQ(d.heads, 128);
    EXPECT_EQ(d.kv_heads, 128);
    EXPECT_EQ(d.head_size, 192);
    EXPECT_EQ(d.latent, (LatentAttention{512, 1536, 64, 128}));
    EXPECT_EQ(d.experts.count, 256);
    EXPECT_EQ(d.experts.per_token, 8);
    EXPECT_EQ(d.experts.ffn, 2048);
    EXPECT_EQ(d.experts.shared_ffn, 2048);
    EXPECT_EQ(d.experts.dense_layers, 3);
    EXPECT_TRUE(d.experts.router_fp32);
  }
  const Decoder lite = Read(R"({"model_type": "deepseek_v2", "hidden_size": 2048, "num_attention_heads": 16,
                                "q_lora_rank": null, "kv_lora_rank": 256, "qk_nope_head_dim": 96,
                                "qk_rope_head_dim": 32, "v_head_dim": 64, "num_experts_per_tok": 6})");
  EXPECT_EQ(lite.latent, (LatentAttention{256, 0, 32, 64}));
  EXPECT_EQ(lite.head_size, 128);
  EXPECT_EQ(lite.kv_heads, 16);
  EXPECT_EQ(lite.experts.shared_ffn, 2 * 1407);
  EXPECT_EQ(lite.experts.dense_layers, 0);
  EXPECT_EQ(Read(R"({"model_type": "deepseek_v2", "num_experts_per_tok": 6})").latent.q_lora_rank, 1536)
      << "missing, and not null";
}

TEST(HuggingFaceConfig, RefusesMultiLatentAttentionThatItCannotRepresent) {
  struct Case {
    std::string keys, reason;
  };
  for (const auto& [keys, reason] : {Case{R"("attention_bias": true)", "attention_bias: expected false"},
                                     {R"("num_key_value_heads": 8)", "as many as num_attention_heads (128)"},
                                     {R"("moe_layer_freq": 2)", "moe_layer_freq: expected 1"},
                                     {R"("kv_lora_rank": 0)", "kv_lora_rank: expected a whole number from 1"}}) {
    const std::string error = ErrorOf(R"({"model_type": "deepseek_v3", )" + keys + "}");
    EXPECT_NE(error.find(reason), std::string::npos) << error;
  }
  EXPECT_NE(ErrorOf(R"({"model_type": "deepseek_v2"})").find("num_experts_per_tok: is missing"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model_type": "deepseek_v2", "num_experts_per_tok": 6, "mlp_bias": true})").find("mlp_bias"),
            std::string::npos);
}

TEST(HuggingFaceConfig, SparesUnknownKeys) {
  EXPECT_EQ(Read(R"({"model_type": "llama", "rope_scaling": {"factor": 8.0}, "torch_dtype": "float16"})").hidden, 4096);
}

TEST(HuggingFaceConfig, TellsNullFromAMissingKey) {
  for (const std::string type : {"llama", "mistral", "mixtral", "qwen2", "qwen3", "phi3"}) {
    const Decoder d =
        Read(R"({"model_type": ")" + type + R"(", "num_attention_heads": 64, "num_key_value_heads": null})");
    EXPECT_EQ(d.kv_heads, 64) << type << ": not grouped, whatever the class's default is";
  }
  for (const std::string type : {"llama", "mistral", "mixtral"}) {
    const Decoder d = Read(R"({"model_type": ")" + type + R"(", "num_attention_heads": 16, "head_dim": null})");
    EXPECT_EQ(d.head_size, 256) << type;
  }
  EXPECT_EQ(Read(R"({"model_type": "llama", "num_experts": null})").hidden, 4096);
  EXPECT_EQ(Read(R"({"model_type": "gpt2", "n_embd": 1024, "n_head": 16, "n_inner": null})").ffn, 4096);
  EXPECT_EQ(Read(R"({"model_type": "opt", "word_embed_proj_dim": null})").hidden, 768);
  EXPECT_EQ(Read(R"({"model_type": "qwen3_moe", "mlp_only_layers": null})").experts.dense_layers, 0);
}

TEST(HuggingFaceConfig, RefusesNullWhereTheClassTakesNone) {
  struct Null {
    std::string type, key, expected;
  };
  for (const auto& [type, key, expected] : {Null{"llama", "hidden_size", "a whole number from 1"},
                                            {"qwen3", "head_dim", "a whole number from 1"},  // 128 whatever the heads
                                            {"qwen2", "head_dim", "a whole number from 1"},  // it has no such field
                                            {"glm4_moe", "num_key_value_heads", "a whole number from 1"},
                                            {"qwen2_moe", "num_key_value_heads", "a whole number from 1"},
                                            {"qwen3_moe", "num_key_value_heads", "a whole number from 1"},
                                            {"gpt2", "attn_pdrop", "a number of at least 0 and below 1"},
                                            {"glm4_moe", "n_shared_experts", "a whole number from 0"},
                                            {"mistral", "tie_word_embeddings", "true or false"},
                                            {"gpt2", "activation_function", "a word in quotes"}}) {
    const std::string error = ErrorOf("{\n\"model_type\": \"" + type + "\",\n\"" + key + "\": null}");
    EXPECT_NE(error.find("dir/config.json:3: " + key + ": expected " + expected), std::string::npos) << error;
    EXPECT_NE(error.find("found null"), std::string::npos) << error;
  }
}

TEST(HuggingFaceConfig, RefusesAKeyThatIsOneLetterAwayFromAMissingOne) {
  struct Slip {
    std::string type, key, meant;
  };
  for (const auto& [type, key, meant] : {Slip{"llama", "head_dims", "head_dim"},
                                         {"llama", "hidden_szie", "hidden_size"},
                                         {"qwen3_moe", "num_expert", "num_experts"},
                                         {"gpt2", "n_heads", "n_head"}}) {
    const std::string error = ErrorOf("{\n\"model_type\": \"" + type + "\",\n\"" + key + "\": 64}");
    EXPECT_NE(error.find("dir/config.json:3: " + key + ": there is no such key"), std::string::npos) << error;
    EXPECT_NE(error.find("did you mean " + meant + "?"), std::string::npos) << error;
  }
  EXPECT_NE(ErrorOf(R"({"model_type": "llama", "head_dim": null, "head_dims": 64})").find("did you mean head_dim?"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model_type": "gpt2", "n_embed": 1600, "n_head": 25})").find("did you mean n_embd?"),
            std::string::npos)
      << "and not that 25 heads are none for 768";
  const Decoder both = Read(R"({"model_type": "llama", "head_dim": 64, "head_dims": 32, "hidden_sizes": null,
                                "hidden_size": 1024, "kv_channels": 7})");
  EXPECT_EQ(both.head_size, 64);
}

TEST(HuggingFaceConfig, KeepsAHeadSizeThatIsNotHiddenOverHeads) {
  EXPECT_EQ(Read(R"({"model_type": "mistral", "hidden_size": 5120, "head_dim": 128})").head_size, 128);
}

TEST(HuggingFaceConfig, CallsTheNetworkAfterItsFileOrItsFolder) {
  EXPECT_EQ(ReadHuggingFaceConfig(R"({"model_type": "gpt2"})", "models/small.json")->name, "small");
  EXPECT_EQ(ReadHuggingFaceConfig(R"({"model_type": "gpt2"})", "zephyr/config.json")->name, "zephyr");
}

TEST(HuggingFaceConfig, ReadsFilesIndentedByTabs) {
  EXPECT_EQ(Read("{\n\t\"model_type\": \"gpt2\",\n\t\"n_layer\": 3\n}\n").layers, 3);
}

TEST(HuggingFaceConfig, RefusesAnUnknownModelTypeAndNamesTheKnownOnes) {
  const std::string error = ErrorOf("{\n  \"model_type\": \"qwen4\"\n}");
  EXPECT_NE(error.find("dir/config.json:2: model_type"), std::string::npos) << error;
  EXPECT_NE(
      error.find(
          "deepseek_v2, deepseek_v3, ernie4_5, exaone4, gemma, gemma3_text, glm4, glm4_moe, gpt2, gpt_neox, granite, "
          "kimi_k2, llama, minimax_m2, mistral, mixtral, olmo2, olmo3, olmoe, opt, phi3, qwen2, qwen2_moe, qwen3, "
          "qwen3_moe, smollm3, starcoder2"),
      std::string::npos)
      << error;
  EXPECT_EQ(error.find("did you mean"), std::string::npos) << error;  // a qwen4 is no qwen3
}

TEST(HuggingFaceConfig, RefusesAFileWithoutModelType) {
  EXPECT_NE(ErrorOf(R"({"hidden_size": 64})").find("model_type"), std::string::npos);
}

TEST(HuggingFaceConfig, NamesFileLineAndFieldOfAWrongType) {
  const std::string error = ErrorOf("{\n\"model_type\": \"llama\",\n\"hidden_size\": \"4096\"\n}");
  EXPECT_NE(error.find("dir/config.json:3: hidden_size: expected a whole number"), std::string::npos) << error;
  for (const char* value : {"4096.5", "true", "[1]", "{}", "-1", "0", "1e400", "99999999999999999999"}) {
    const std::string text = std::string(R"({"model_type": "llama", "hidden_size": )") + value + "}";
    EXPECT_FALSE(ReadHuggingFaceConfig(text, "c.json").ok()) << value;
  }
}

TEST(HuggingFaceConfig, NamesTheLineWhereAFileBreaksOff) {
  EXPECT_NE(ErrorOf("{\n\"model_type\": \"llama\",\n\"hidden_si").find("dir/config.json:3: expected valid JSON"),
            std::string::npos);
  EXPECT_NE(ErrorOf("").find("expected valid JSON"), std::string::npos);
  EXPECT_NE(ErrorOf("[1, 2]").find("expected a JSON object"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model_type": "gpt2", "n_layer": 1, "n_layer": 2})").find("n_layer"), std::string::npos);
}

TEST(HuggingFaceConfig, RefusesShapesThatItsTablesCannotRepresent) {
  EXPECT_NE(ErrorOf(R"({"model_type": "opt", "hidden_size": 1024, "word_embed_proj_dim": 512,
                        "num_attention_heads": 16})")
                .find("word_embed_proj_dim"),
            std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model_type": "llama", "attention_bias": true})").find("attention_bias"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model_type": "gpt2", "n_head": 7})").find("n_head"), std::string::npos);
  EXPECT_NE(ErrorOf(R"({"model_type": "phi3", "resid_pdrop": 0.1})").find("resid_pdrop: expected 0"),
            std::string::npos);
}

TEST(HuggingFaceConfig, RefusesWhatWouldTakeOtherMemoryThanALanguageModelInTheDtypesOfTheJob) {
  const auto error = [](const std::string& key) { return ErrorOf("{\n\"model_type\": \"llama\",\n" + key + "}"); };
  EXPECT_NE(
      error(R"("quantization_config": {"load_in_4bit": true})").find("config.json:3: quantization_config: expected"),
      std::string::npos);
  EXPECT_NE(error(R"("num_local_experts": 8)").find("num_local_experts: expected a network without experts"),
            std::string::npos);
  for (const std::string experts : {"0", "1", "null"}) {
    EXPECT_EQ(Read(R"({"model_type": "llama", "num_local_experts": )" + experts + "}").hidden, 4096);
  }
  EXPECT_NE(error(R"("peft_type": "LORA")").find("peft_type: expected a network that is trained itself"),
            std::string::npos);
  for (const std::string head : {"ForSequenceClassification", "ForTokenClassification", "ForQuestionAnswering"}) {
    const std::string text = error("\"architectures\": [\"Llama" + head + "\"]");
    EXPECT_NE(text.find("architectures: expected a language model, found Llama" + head), std::string::npos) << text;
  }
  EXPECT_NE(error(R"("architectures": "LlamaForCausalLM")").find("architectures: expected a list of words"),
            std::string::npos);
  EXPECT_EQ(
      Read(R"({"model_type": "llama", "quantization_config": null, "architectures": ["LlamaForCausalLM"]})").hidden,
      4096);
  EXPECT_EQ(Read(R"({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]})").hidden, 768);
}

TEST(HuggingFaceConfig, IsRecognisedByItsModelType) {
  EXPECT_TRUE(LooksLikeHuggingFaceConfig(" \n{\"model_type\": \"llama\"}"));
  EXPECT_FALSE(LooksLikeHuggingFaceConfig("network: llama-3-8b"));
  EXPECT_FALSE(LooksLikeHuggingFaceConfig("{\"zero_optimization\": {}}"));
  EXPECT_FALSE(LooksLikeHuggingFaceConfig(""));
}

}  // namespace
}  // namespace tidemark::config_huggingface_test
