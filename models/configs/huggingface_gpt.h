// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/configs/huggingface_keys.h"
#include "models/network/network.h"

namespace tidemark {

// Networks like GPT's, from the config.json of a model of this type.

Decoder ReadGpt2(HuggingFaceKeys& keys);
Decoder ReadGptNeox(HuggingFaceKeys& keys);
Decoder ReadOpt(HuggingFaceKeys& keys);
Decoder ReadStarcoder2(HuggingFaceKeys& keys);

}  // namespace tidemark
