// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/configs/huggingface_keys.h"
#include "models/network/network.h"

namespace tidemark {

// Networks whose norms stand elsewhere than Llama's (Decoder::norm_placement), or are of all heads of a token at once
// (Decoder::qk_norm_over), from the config.json of a model of this type.

Decoder ReadExaone4(HuggingFaceKeys& keys);
Decoder ReadGemma3Text(HuggingFaceKeys& keys);
Decoder ReadGlm4(HuggingFaceKeys& keys);
Decoder ReadMiniMaxM2(HuggingFaceKeys& keys);
Decoder ReadOlmo2(HuggingFaceKeys& keys);
Decoder ReadOlmo3(HuggingFaceKeys& keys);
Decoder ReadOlmoe(HuggingFaceKeys& keys);

}  // namespace tidemark
