// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "models/configs/huggingface_keys.h"
#include "models/network/network.h"

namespace tidemark {

// Sliding windows of attention (Decoder::sliding_window), as classes of transformers have them: the key counts a token
// itself, as here. What the decoder has besides must have been read. Windows of encoders reach to both sides and are
// passed over.

/// `sliding_window`, of all layers. `missing` is the class's default; null, or here 0, is none.
void ReadWindow(HuggingFaceKeys& keys, Decoder& decoder, std::int64_t missing);

/// The same of all layers but each so many-th: `every`, or what `layer_types` says. By pattern, what
/// `sliding_window_pattern` says in front of `every`.
void ReadWindowOfMost(HuggingFaceKeys& keys, Decoder& decoder, std::int64_t missing, std::int64_t every);
void ReadWindowByPattern(HuggingFaceKeys& keys, Decoder& decoder, std::int64_t missing, std::int64_t every);

/// Of Qwen's classes with feed-forward layers: where `use_sliding_window` says so, of the layers from
/// `max_window_layers` on, or by `layer_types`.
void ReadUsedWindow(HuggingFaceKeys& keys, Decoder& decoder);

/// `use_sliding_window` of classes whose windows are of other layers than those, where there is one to be used.
void RequireNoWindow(HuggingFaceKeys& keys, std::int64_t missing);

}  // namespace tidemark
