// SPDX-License-Identifier: Apache-2.0
#include "models/configs/hub_networks.h"

#include <algorithm>
#include <array>
#include <iterator>

#include "base/text.h"

namespace tidemark {
namespace {

struct HubModel {
  std::string_view name;  ///< in small letters
  std::string_view network;
};

/// By each model's config.json. Left out is what differs in a number: Mistral 7B v0.3 has 32,768 rows, and Llama 3.1
/// 405B had 16 key-value heads when it came out. So are models that see images: their language model is a part of them.
constexpr std::array kModels = {
    HubModel{"gpt2", "gpt2"},
    HubModel{"gpt2-medium", "gpt2-medium"},
    HubModel{"gpt2-large", "gpt2-large"},
    HubModel{"gpt2-xl", "gpt2-xl"},
    HubModel{"openai-community/gpt2", "gpt2"},
    HubModel{"openai-community/gpt2-medium", "gpt2-medium"},
    HubModel{"openai-community/gpt2-large", "gpt2-large"},
    HubModel{"openai-community/gpt2-xl", "gpt2-xl"},
    HubModel{"eleutherai/gpt-neox-20b", "gpt-neox-20b"},
    HubModel{"eleutherai/pythia-1b", "pythia-1b"},
    HubModel{"eleutherai/pythia-1b-deduped", "pythia-1b"},
    HubModel{"microsoft/phi-3-mini-4k-instruct", "phi-3-mini"},
    HubModel{"microsoft/phi-3-mini-128k-instruct", "phi-3-mini-128k"},
    HubModel{"microsoft/phi-3.5-mini-instruct", "phi-3-mini-128k"},
    HubModel{"microsoft/phi-4", "phi-4"},
    HubModel{"microsoft/phi-4-reasoning", "phi-4"},
    HubModel{"microsoft/phi-4-reasoning-plus", "phi-4"},
    HubModel{"microsoft/phi-4-mini-instruct", "phi-4-mini"},
    HubModel{"microsoft/phi-4-mini-reasoning", "phi-4-mini"},
    HubModel{"facebook/opt-1.3b", "opt-1.3b"},
    HubModel{"facebook/opt-6.7b", "opt-6.7b"},
    HubModel{"meta-llama/llama-2-7b", "llama-2-7b"},
    HubModel{"meta-llama/llama-2-13b", "llama-2-13b"},
    HubModel{"meta-llama/llama-2-70b", "llama-2-70b"},
    HubModel{"meta-llama/llama-2-7b-hf", "llama-2-7b"},
    HubModel{"meta-llama/llama-2-7b-chat-hf", "llama-2-7b"},
    HubModel{"meta-llama/llama-2-13b-hf", "llama-2-13b"},
    HubModel{"meta-llama/llama-2-13b-chat-hf", "llama-2-13b"},
    HubModel{"meta-llama/llama-2-70b-hf", "llama-2-70b"},
    HubModel{"meta-llama/llama-2-70b-chat-hf", "llama-2-70b"},
    HubModel{"meta-llama/meta-llama-3-8b", "llama-3-8b"},
    HubModel{"meta-llama/meta-llama-3-8b-instruct", "llama-3-8b"},
    HubModel{"meta-llama/meta-llama-3-70b", "llama-3-70b"},
    HubModel{"meta-llama/meta-llama-3-70b-instruct", "llama-3-70b"},
    HubModel{"meta-llama/meta-llama-3.1-8b", "llama-3-8b"},
    HubModel{"meta-llama/meta-llama-3.1-8b-instruct", "llama-3-8b"},
    HubModel{"meta-llama/llama-3.1-8b", "llama-3-8b"},
    HubModel{"meta-llama/llama-3.1-8b-instruct", "llama-3-8b"},
    HubModel{"meta-llama/meta-llama-3.1-70b", "llama-3-70b"},
    HubModel{"meta-llama/meta-llama-3.1-70b-instruct", "llama-3-70b"},
    HubModel{"meta-llama/llama-3.1-70b", "llama-3-70b"},
    HubModel{"meta-llama/llama-3.1-70b-instruct", "llama-3-70b"},
    HubModel{"meta-llama/llama-3.3-70b-instruct", "llama-3-70b"},
    HubModel{"meta-llama/llama-3.2-1b", "llama-3.2-1b"},
    HubModel{"meta-llama/llama-3.2-1b-instruct", "llama-3.2-1b"},
    HubModel{"mistralai/mistral-7b-v0.1", "mistral-7b"},
    HubModel{"mistralai/mistral-7b-instruct-v0.1", "mistral-7b"},
    HubModel{"mistralai/mistral-7b-instruct-v0.2", "mistral-7b-v0.2"},
    HubModel{"mistralai/mistral-7b-v0.3", "mistral-7b-v0.3"},
    HubModel{"mistralai/mistral-7b-instruct-v0.3", "mistral-7b-v0.3"},
    HubModel{"mistralai/mixtral-8x7b-v0.1", "mixtral-8x7b"},
    HubModel{"mistralai/mixtral-8x7b-instruct-v0.1", "mixtral-8x7b"},
    HubModel{"alignment-handbook/zephyr-7b-sft-full", "mistral-7b"},
    HubModel{"huggingfaceh4/zephyr-7b-beta", "mistral-7b"},
    HubModel{"qwen/qwen2-7b", "qwen2-7b"},
    HubModel{"qwen/qwen2-7b-instruct", "qwen2-7b"},
    HubModel{"qwen/qwen2.5-7b", "qwen2-7b"},
    HubModel{"qwen/qwen2.5-7b-instruct", "qwen2-7b"},
    HubModel{"qwen/qwen2.5-coder-7b", "qwen2-7b"},
    HubModel{"qwen/qwen2.5-coder-7b-instruct", "qwen2-7b"},
    HubModel{"deepseek-ai/deepseek-r1-distill-qwen-7b", "qwen2-7b"},
    HubModel{"deepseek-ai/deepseek-r1-distill-llama-8b", "llama-3-8b"},
    HubModel{"deepseek-ai/deepseek-r1-distill-llama-70b", "llama-3-70b"},
    HubModel{"qwen/qwen1.5-moe-a2.7b", "qwen1.5-moe-a2.7b"},
    HubModel{"qwen/qwen1.5-moe-a2.7b-chat", "qwen1.5-moe-a2.7b"},
    HubModel{"qwen/qwen2-0.5b", "qwen2.5-0.5b"},
    HubModel{"qwen/qwen2-0.5b-instruct", "qwen2.5-0.5b"},
    HubModel{"qwen/qwen2.5-0.5b", "qwen2.5-0.5b"},
    HubModel{"qwen/qwen2.5-0.5b-instruct", "qwen2.5-0.5b"},
    HubModel{"qwen/qwen3-0.6b", "qwen3-0.6b"},
    HubModel{"qwen/qwen3-0.6b-base", "qwen3-0.6b"},
    HubModel{"qwen/qwen3-1.7b", "qwen3-1.7b"},
    HubModel{"qwen/qwen3-1.7b-base", "qwen3-1.7b"},
    HubModel{"qwen/qwen3-4b", "qwen3-4b"},
    HubModel{"qwen/qwen3-4b-base", "qwen3-4b"},
    HubModel{"qwen/qwen3-4b-instruct-2507", "qwen3-4b"},
    HubModel{"qwen/qwen3-4b-thinking-2507", "qwen3-4b"},
    HubModel{"qwen/qwen3-8b", "qwen3-8b"},
    HubModel{"qwen/qwen3-8b-base", "qwen3-8b"},
    HubModel{"qwen/qwen3-14b", "qwen3-14b"},
    HubModel{"qwen/qwen3-14b-base", "qwen3-14b"},
    HubModel{"qwen/qwen3-32b", "qwen3-32b"},
    HubModel{"qwen/qwen3-30b-a3b", "qwen3-30b-a3b"},
    HubModel{"qwen/qwen3-30b-a3b-base", "qwen3-30b-a3b"},
    HubModel{"qwen/qwen3-30b-a3b-instruct-2507", "qwen3-30b-a3b"},
    HubModel{"qwen/qwen3-30b-a3b-thinking-2507", "qwen3-30b-a3b"},
    HubModel{"deepseek-ai/deepseek-v3", "deepseek-v3"},
    HubModel{"deepseek-ai/deepseek-v3-base", "deepseek-v3"},
    HubModel{"deepseek-ai/deepseek-v3-0324", "deepseek-v3"},
    HubModel{"deepseek-ai/deepseek-v3.1", "deepseek-v3"},
    HubModel{"deepseek-ai/deepseek-v3.1-base", "deepseek-v3"},
    HubModel{"deepseek-ai/deepseek-v3.1-terminus", "deepseek-v3"},
    HubModel{"deepseek-ai/deepseek-r1", "deepseek-v3"},
    HubModel{"deepseek-ai/deepseek-r1-zero", "deepseek-v3"},
    HubModel{"deepseek-ai/deepseek-r1-0528", "deepseek-v3"},
    HubModel{"deepseek-ai/deepseek-v2", "deepseek-v2"},
    HubModel{"deepseek-ai/deepseek-v2-chat", "deepseek-v2"},
    HubModel{"deepseek-ai/deepseek-v2-chat-0628", "deepseek-v2"},
    HubModel{"deepseek-ai/deepseek-v2.5", "deepseek-v2"},
    HubModel{"deepseek-ai/deepseek-v2.5-1210", "deepseek-v2"},
    HubModel{"deepseek-ai/deepseek-coder-v2-base", "deepseek-v2"},
    HubModel{"deepseek-ai/deepseek-coder-v2-instruct", "deepseek-v2"},
    HubModel{"deepseek-ai/deepseek-v2-lite", "deepseek-v2-lite"},
    HubModel{"deepseek-ai/deepseek-v2-lite-chat", "deepseek-v2-lite"},
    HubModel{"deepseek-ai/deepseek-coder-v2-lite-base", "deepseek-v2-lite"},
    HubModel{"deepseek-ai/deepseek-coder-v2-lite-instruct", "deepseek-v2-lite"},
    HubModel{"moonshotai/kimi-k2-base", "kimi-k2"},
    HubModel{"moonshotai/kimi-k2-instruct", "kimi-k2"},
    HubModel{"moonshotai/kimi-k2-instruct-0905", "kimi-k2"},
    HubModel{"moonshotai/kimi-k2-thinking", "kimi-k2"},
    HubModel{"moonshotai/moonlight-16b-a3b", "moonlight-16b-a3b"},
    HubModel{"moonshotai/moonlight-16b-a3b-instruct", "moonlight-16b-a3b"},
    HubModel{"zai-org/glm-4.5", "glm-4.5"},
    HubModel{"zai-org/glm-4.5-base", "glm-4.5"},
    HubModel{"zai-org/glm-4.5-air", "glm-4.5-air"},
    HubModel{"zai-org/glm-4.5-air-base", "glm-4.5-air"},
    HubModel{"zai-org/glm-4-9b-0414", "glm-4-9b"},
    HubModel{"google/gemma-2b", "gemma-2b"},
    HubModel{"google/gemma-2b-it", "gemma-2b"},
    HubModel{"google/gemma-7b", "gemma-7b"},
    HubModel{"google/gemma-7b-it", "gemma-7b"},
    HubModel{"google/gemma-3-270m", "gemma-3-270m"},
    HubModel{"google/gemma-3-270m-it", "gemma-3-270m"},
    HubModel{"google/gemma-3-1b-pt", "gemma-3-1b"},
    HubModel{"google/gemma-3-1b-it", "gemma-3-1b"},
    HubModel{"allenai/olmo-2-1124-7b", "olmo-2-7b"},
    HubModel{"allenai/olmo-2-1124-7b-sft", "olmo-2-7b"},
    HubModel{"allenai/olmo-2-1124-7b-instruct", "olmo-2-7b"},
    HubModel{"allenai/olmo-2-1124-13b", "olmo-2-13b"},
    HubModel{"allenai/olmo-2-1124-13b-sft", "olmo-2-13b"},
    HubModel{"allenai/olmo-2-1124-13b-instruct", "olmo-2-13b"},
    HubModel{"allenai/olmo-3-1025-7b", "olmo-3-7b"},
    HubModel{"allenai/olmoe-1b-7b-0924", "olmoe-1b-7b"},
    HubModel{"allenai/olmoe-1b-7b-0924-instruct", "olmoe-1b-7b"},
    HubModel{"minimaxai/minimax-m2", "minimax-m2"},
    HubModel{"huggingfacetb/smollm3-3b", "smollm3-3b"},
    HubModel{"huggingfacetb/smollm3-3b-base", "smollm3-3b"},
    HubModel{"nousresearch/llama-2-7b-hf", "llama-2-7b"},
    HubModel{"nousresearch/llama-2-13b-hf", "llama-2-13b"},
    HubModel{"nousresearch/meta-llama-3-8b", "llama-3-8b"},
    HubModel{"nousresearch/meta-llama-3-8b-instruct", "llama-3-8b"},
    HubModel{"nousresearch/meta-llama-3.1-8b", "llama-3-8b"},
    HubModel{"nousresearch/llama-3.2-1b", "llama-3.2-1b"},
    HubModel{"tinyllama/tinyllama-1.1b-chat-v1.0", "tinyllama-1.1b"},
};

}  // namespace

std::string_view NetworkOfHub(const std::string& name) {
  const auto found = std::ranges::find(kModels, LowerCase(name), &HubModel::name);
  return found == std::end(kModels) ? std::string_view() : found->network;
}

std::vector<std::string> HubNames() {
  std::vector<std::string> names;
  for (const HubModel& model : kModels) {
    names.emplace_back(model.name);
  }
  return names;
}

}  // namespace tidemark
