// SPDX-License-Identifier: Apache-2.0
#include "models/configs/huggingface_experts.h"

#include <fmt/format.h>

namespace tidemark {

const char* KeyOfExperts(HuggingFaceKeys& keys) {
  constexpr const char* kLocal = "num_local_experts";
  constexpr const char* kPlain = "num_experts";
  const bool both = keys.Has(kPlain) && keys.Has(kLocal);
  keys.Require(!both || keys.Whole(kPlain, 0) == keys.Whole(kLocal, 0), kLocal,
               fmt::format("expected the same as {}", kPlain));
  return keys.Has(kLocal) ? kLocal : kPlain;
}

void ReadHuggingFaceExperts(HuggingFaceKeys& keys, Experts& experts, const char* count, std::int64_t missing_count,
                            std::int64_t missing_per_token) {
  experts.count = keys.Whole(count, missing_count);
  experts.per_token = keys.Whole("num_experts_per_tok", missing_per_token);
  experts.balancing_loss = keys.Truth("output_router_logits", false);
  keys.Require(experts.per_token <= experts.count, "num_experts_per_tok",
               fmt::format("expected at most {} ({}), found {}", count, experts.count, experts.per_token));
}

void RequireExpertsBehind(HuggingFaceKeys& keys, const Decoder& decoder, const std::string& key) {
  keys.Require(decoder.experts.dense_layers < decoder.layers, key,
               fmt::format("expected fewer layers without experts than there are ({}), found {}", decoder.layers,
                           decoder.experts.dense_layers));
}

void ReadRoutedExperts(HuggingFaceKeys& keys, Decoder& decoder, const RoutedDefaults& defaults) {
  Experts& experts = decoder.experts;
  ReadHuggingFaceExperts(keys, experts, "n_routed_experts", defaults.count, defaults.per_token);
  experts.balancing_loss = false;
  experts.ffn = keys.Whole("moe_intermediate_size", defaults.ffn);
  experts.shared_ffn = keys.Whole("n_shared_experts", defaults.shared, 0) * experts.ffn;
  experts.dense_layers = keys.Whole("first_k_dense_replace", defaults.dense_layers, 0);
  experts.router_fp32 = true;
  RequireExpertsBehind(keys, decoder, "first_k_dense_replace");
}

}  // namespace tidemark
