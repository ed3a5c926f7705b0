// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

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
/// Of the classes that have the key and take null for that part; others only look for it. `missing` is their default, 0
/// that it is null.
void ReadHeadSizeOrNull(HuggingFaceKeys& keys, Decoder& decoder, std::int64_t missing = 0);

/// Of a key for which null stands for false, the default.
bool TruthOrNull(HuggingFaceKeys& keys, const std::string& key);

/// `attention_bias` of a class where it is of all four projections of attention, and of none of the feed-forward
/// part's.
void RequireNoAttentionBias(HuggingFaceKeys& keys);

}  // namespace tidemark
