// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "models/configs/huggingface_keys.h"
#include "models/network/network.h"

namespace tidemark {

/// What classes of transformers differ in of the keys that most of them have.
struct DecoderDefaults {
  std::int64_t hidden = 4096, ffn, layers = 32, heads = 32;
  std::int64_t kv_heads = 0;  ///< 0: as many as heads
  std::int64_t vocabulary;
  bool null_kv_heads = false;  ///< null is taken, for as many as heads
  bool tied_embeddings = false;
};

/// Those keys of one file; the size of a head is still to be read.
Decoder ReadDecoder(HuggingFaceKeys& keys, const DecoderDefaults& defaults);

/// `head_dim`, which may differ from a head's part of the hidden size, and must be given where there is none.
void ReadHeadSize(HuggingFaceKeys& keys, Decoder& decoder);
/// Of the classes that have the key, where null is the default; others only look for it.
void ReadHeadSizeOrNull(HuggingFaceKeys& keys, Decoder& decoder);

/// `attention_bias` of a class where it is of all four projections of attention, and of none of the feed-forward
/// part's.
void RequireNoAttentionBias(HuggingFaceKeys& keys);

}  // namespace tidemark
