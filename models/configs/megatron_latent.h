// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/configs/tool_fields.h"

namespace tidemark {

/// The keys of network.latent_attention, and what follows from them for others of the network, from --multi-latent-
/// attention and what belongs to it. Without that option nothing.
Status ReadMegatronLatentAttention(const ToolFields& fields, Settings& settings);

}  // namespace tidemark
