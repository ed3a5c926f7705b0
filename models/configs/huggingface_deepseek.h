// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/configs/huggingface_keys.h"
#include "models/network/network.h"

namespace tidemark {

// Networks with multi-latent attention, from the config.json of a model of this type.

Decoder ReadDeepseekV2(HuggingFaceKeys& keys);
/// Kimi K2's as well, whose files have the same keys.
Decoder ReadDeepseekV3(HuggingFaceKeys& keys);

}  // namespace tidemark
