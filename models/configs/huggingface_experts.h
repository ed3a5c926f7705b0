// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "models/configs/huggingface_keys.h"
#include "models/network/network.h"

namespace tidemark {

/// The key that counts them where both names of it are known to a class: the one that is there.
const char* KeyOfExperts(HuggingFaceKeys& keys);

/// Experts that `count` counts. The loss that balances them is computed where the model returns the router's logits.
void ReadHuggingFaceExperts(HuggingFaceKeys& keys, Experts& experts, const char* count, std::int64_t missing_count,
                            std::int64_t missing_per_token);

/// Keeps the error that no layer has experts, by the key that says how many of the first ones have none.
void RequireExpertsBehind(HuggingFaceKeys& keys, const Decoder& decoder, const std::string& key);

/// What a class takes for keys that are missing.
struct RoutedDefaults {
  std::int64_t count, per_token, ffn, shared, dense_layers;  ///< shared: experts, each of the width ffn
};

/// The experts of GLM-4.5's and DeepSeek's classes, whose router works in fp32. Groups of experts and a bias, by which
/// some of these choose among them, are no parameters and are passed over. The router's logits may be asked for, but no
/// loss is made of them; the layer behind the last one, which predicts further tokens, transformers leaves out.
void ReadRoutedExperts(HuggingFaceKeys& keys, Decoder& decoder, const RoutedDefaults& defaults);

}  // namespace tidemark
