// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "models/network/network.h"

namespace tidemark {

/// Makes the oracle's decoder GPT-style, as in Korthikanti et al., 2022: dropout everywhere, LayerNorm, scores in
/// memory.
inline void MakeGptStyle(Decoder& d) {
  d.ffn = 4096;
  d.kv_heads = 16;
  d.norm = Decoder::Norm::layer;
  d.ffn_kind = Decoder::Ffn::two_layer;
  d.rope = false;
  d.positions = 2048;
  d.qkv_bias = d.linear_bias = true;
  d.dropout = d.attention_dropout = 0.1;
  d.attention_kernel = Decoder::AttentionKernel::eager;
}

}  // namespace tidemark
