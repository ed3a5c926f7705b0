// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "models/configs/huggingface_keys.h"
#include "models/network/network.h"

namespace tidemark {

/// Experts that `count` counts. The loss that balances them is computed where the model returns the router's logits.
void ReadHuggingFaceExperts(HuggingFaceKeys& keys, Experts& experts, const char* count, std::int64_t missing_count,
                            std::int64_t missing_per_token);

/// At least one layer, of those that `key` leaves.
void RequireExpertsBehind(HuggingFaceKeys& keys, const Decoder& decoder, const std::string& key);

/// What GLM-4.5's and DeepSeek's classes say alike. Scores, of which the best are chosen with a bias that is no
/// parameter, and among groups of experts, are fp32. Router's logits may be asked for, but no loss is made of them; the
/// layer behind the last one, which predicts further tokens, transformers leaves out.
struct RoutedDefaults {
  std::int64_t count, per_token, ffn, shared, dense_layers;
};
void ReadRoutedExperts(HuggingFaceKeys& keys, Decoder& decoder, const RoutedDefaults& defaults);

}  // namespace tidemark
