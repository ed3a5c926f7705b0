// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include "base/result.h"
#include "models/network/network.h"

namespace tidemark {

/// The network that a Hugging Face `config.json` describes. A key that is missing or null has the default of its model
/// type's class in transformers, as it has there; a model type whose class is not known is refused, because its
/// defaults and its layers are others, and so are quantized weights, the heads of classifiers, and a key that is one
/// letter away from one that is missing; other unknown keys are ignored. `origin` names the file in errors, and the
/// network: that of "models/gpt2.json" is "gpt2", that of "zephyr/config.json" is "zephyr".
/// dtypes in the file are those of a checkpoint and say nothing about training; they are ignored.
Result<Network> ReadHuggingFaceConfig(std::string_view text, std::string_view origin);

/// Whether it is worth trying: a JSON object with a model type.
bool LooksLikeHuggingFaceConfig(std::string_view text);

}  // namespace tidemark
