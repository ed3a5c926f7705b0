// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "base/result.h"
#include "models/configs/torchtitan_module.h"
#include "models/network/network.h"

namespace tidemark {

/// Attention in what torchtitan saves of a config: with grouped queries (models/common/attention.py, GQAttention) or
/// multi-latent (models/deepseek_v3/model.py, Attention).
struct SavedAttention {
  std::int64_t heads = 0, kv_heads = 0, head_size = 0;
  bool qk_norm = false, packed = false, bias = false;
  LatentAttention latent;
  friend bool operator==(const SavedAttention&, const SavedAttention&) = default;
};

/// Of the layer's module `attention`. Fails where sizes contradict each other, and on what is not modelled.
Result<SavedAttention> ReadSavedAttention(const TorchtitanModule& layer, std::int64_t hidden);

}  // namespace tidemark
