// SPDX-License-Identifier: Apache-2.0
#include "models/zoo/zoo.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>

namespace tidemark::zoo_test {
namespace {

// Parameter counts as published. "HF": the parameter total that the model's Hugging Face page states for its
// safetensors files. "paper": the model's own paper or card. "shapes": added up by hand from the shapes of its
// safetensors files, which its card rounds. Tied embeddings count once.
const std::map<std::string, std::int64_t>& Published() {
  static const std::map<std::string, std::int64_t> counts = {
      {"gpt2", 124'439'808},                  // HF openai-community/gpt2 (buffers aside)
      {"gpt2-medium", 354'823'168},           // HF openai-community/gpt2-medium (buffers aside)
      {"gpt2-large", 774'030'080},            // HF openai-community/gpt2-large (buffers aside)
      {"gpt2-xl", 1'557'611'200},             // HF openai-community/gpt2-xl (buffers aside)
      {"gpt-neox-20b", 20'554'567'680},       // paper: GPT-NeoX-20B, Black et al. 2022, and its model card
      {"pythia-1b", 1'011'781'632},           // paper: Pythia, Biderman et al. 2023, model card "total params"
      {"phi-3-mini", 3'821'079'552},          // HF microsoft/Phi-3-mini-4k-instruct
      {"phi-3-mini-128k", 3'821'079'552},     // HF microsoft/Phi-3-mini-128k-instruct
      {"phi-4", 14'659'507'200},              // HF microsoft/phi-4
      {"phi-4-mini", 3'836'021'760},          // HF microsoft/Phi-4-mini-instruct
      {"opt-1.3b", 1'315'758'080},            // HF facebook/opt-1.3b
      {"opt-6.7b", 6'658'473'984},            // HF facebook/opt-6.7b
      {"llama-2-7b", 6'738'415'616},          // HF meta-llama/Llama-2-7b-hf
      {"llama-2-13b", 13'015'864'320},        // HF meta-llama/Llama-2-13b-hf
      {"llama-2-70b", 68'976'648'192},        // HF meta-llama/Llama-2-70b-hf
      {"llama-3-8b", 8'030'261'248},          // HF meta-llama/Meta-Llama-3-8B
      {"llama-3-70b", 70'553'706'496},        // HF meta-llama/Meta-Llama-3-70B
      {"llama-3.1-405b", 405'853'388'800},    // HF meta-llama/Llama-3.1-405B
      {"llama-3.2-1b", 1'235'814'400},        // HF meta-llama/Llama-3.2-1B
      {"mistral-7b", 7'241'732'096},          // HF mistralai/Mistral-7B-v0.1
      {"mistral-7b-v0.2", 7'241'732'096},     // HF mistralai/Mistral-7B-Instruct-v0.2
      {"mistral-7b-v0.3", 7'248'023'552},     // HF mistralai/Mistral-7B-v0.3
      {"mixtral-8x7b", 46'702'792'704},       // shapes of mistralai/Mixtral-8x7B-v0.1: "46.7B"
      {"qwen1.5-moe-a2.7b", 14'315'784'192},  // shapes of Qwen/Qwen1.5-MoE-A2.7B: "14.3B"
      {"qwen2-7b", 7'615'616'512},            // HF Qwen/Qwen2-7B
      {"qwen2.5-0.5b", 494'032'768},          // HF Qwen/Qwen2.5-0.5B
      {"qwen3-0.6b", 596'049'920},            // HF Qwen/Qwen3-0.6B (its file has the tied head once more)
      {"qwen3-1.7b", 1'720'574'976},          // shapes of Qwen/Qwen3-1.7B, the tied head once
      {"qwen3-4b", 4'022'468'096},            // HF Qwen/Qwen3-4B
      {"qwen3-8b", 8'190'735'360},            // HF Qwen/Qwen3-8B
      {"qwen3-14b", 14'768'307'200},          // HF Qwen/Qwen3-14B
      {"qwen3-32b", 32'762'123'264},          // HF Qwen/Qwen3-32B
      {"qwen3-30b-a3b", 30'532'122'624},      // HF Qwen/Qwen3-30B-A3B
      {"glm-4.5-air", 106'852'245'504},       // transformers 5.24, the config of zai-org/GLM-4.5-Air: "106B"
      {"glm-4.5", 352'797'814'784},           // transformers 5.24, the config of zai-org/GLM-4.5
      {"deepseek-v2", 235'741'434'880},       // transformers 5.24, the config of deepseek-ai/DeepSeek-V2: "236B"
      {"deepseek-v2-lite", 15'706'484'224},   // transformers 5.24, of deepseek-ai/DeepSeek-V2-Lite: "15.7B"
      {"deepseek-v3", 671'026'404'352},       // transformers 5.24, of deepseek-ai/DeepSeek-V3: "671B"
      {"kimi-k2", 1'026'408'209'408},         // transformers 5.24, of moonshotai/Kimi-K2-Instruct: "1T"
      {"moonlight-16b-a3b", 15'960'108'544},  // transformers 5.24, of moonshotai/Moonlight-16B-A3B
      {"gemma-2b", 2'506'172'416},            // HF google/gemma-2b
      {"gemma-7b", 8'537'680'896},            // HF google/gemma-7b
      {"gemma-3-1b", 999'885'952},            // HF google/gemma-3-1b-pt, and keras-hub's gemma3_1b
      {"gemma-3-4b", 3'880'263'168},          // keras-hub's gemma3_4b_text and 64 rows, which google/gemma-3-4b-pt has
      {"gemma-3-12b", 11'766'034'176},        // keras-hub's gemma3_12b_text and 64 rows
      {"gemma-3-27b", 27'009'346'304},        // transformers 5.24, of what google/gemma-3-27b-pt has beside images
      {"gemma-3-270m", 268'098'176},          // transformers 5.24, of google/gemma-3-270m
      {"olmo-2-7b", 7'298'617'344},           // transformers 5.24, the config of allenai/OLMo-2-1124-7B
      {"olmo-2-13b", 13'716'198'400},         // transformers 5.24, of allenai/OLMo-2-1124-13B
      {"olmo-3-7b", 7'298'011'136},           // transformers 5.24, of allenai/Olmo-3-1025-7B
      {"glm-4-9b", 9'400'279'040},            // transformers 5.24, of zai-org/GLM-4-9B-0414: "9B"
      {"smollm3-3b", 3'075'098'624},          // transformers 5.24, of HuggingFaceTB/SmolLM3-3B: "3B"
      {"olmoe-1b-7b", 6'919'161'856},         // transformers 5.24, of allenai/OLMoE-1B-7B-0924: "7B"
      {"minimax-m2", 228'689'748'992},        // transformers 5.24, of MiniMaxAI/MiniMax-M2: "230B"
      {"tinyllama-1.1b", 1'100'048'384},      // HF TinyLlama/TinyLlama-1.1B
  };
  return counts;
}

TEST(Zoo, HoldsTheParameterCountsThatWerePublished) {
  for (const auto& [name, count] : Published()) {
    const Result<Network> network = FindInZoo(name);
    ASSERT_TRUE(network.ok()) << network.error().Text();
    EXPECT_EQ(ParameterCount(*network), count) << name;
    EXPECT_EQ(network->name, name);
  }
}

TEST(Zoo, HoldsGpt3WithinTheRoundingOfItsPaper) {
  // Brown et al. 2020, table 2.1: "175.0B" parameters at 96 layers, width 12288, 96 heads of 128.
  const Result<Network> network = FindInZoo("gpt3-175b");
  ASSERT_TRUE(network.ok()) << network.error().Text();
  EXPECT_NEAR(static_cast<double>(ParameterCount(*network)), 175.0e9, 0.5e9);
  EXPECT_EQ(std::get<Decoder>(network->shape).head_size, 128);
}

TEST(Zoo, HasNoNetworkThatIsNotTested) {
  for (const std::string& name : ZooNames()) {
    EXPECT_TRUE(Published().contains(name) || name == "gpt3-175b") << name;
  }
  EXPECT_GE(ZooNames().size(), 14u);
  const std::vector<std::string> names = ZooNames();
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

TEST(Zoo, BuildsEveryNetworkOnOneRank) {
  for (const std::string& name : ZooNames()) {
    const Result<Network> network = FindInZoo(name);
    ASSERT_TRUE(network.ok()) << network.error().Text();
    Partition partition;
    partition.sequence_length = 1024;
    const auto runs = BuildBlocks(*network, partition);
    ASSERT_TRUE(runs.ok()) << name << ": " << runs.error().Text();
    EXPECT_EQ(runs->size(), std::get<Decoder>(network->shape).experts.dense_layers > 0 ? 4u : 3u) << name;
  }
}

TEST(Zoo, NamesTheNearestNetworkForAMisspelledOne) {
  const Result<Network> network = FindInZoo("llama-3-8");
  ASSERT_FALSE(network.ok());
  EXPECT_NE(network.error().hint.find("llama-3-8b"), std::string::npos) << network.error().Text();
}

}  // namespace
}  // namespace tidemark::zoo_test
