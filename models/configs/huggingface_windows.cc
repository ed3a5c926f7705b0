// SPDX-License-Identifier: Apache-2.0
#include "models/configs/huggingface_windows.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

namespace tidemark {
namespace {

constexpr const char* kLayerTypes = "layer_types";
constexpr const char* kFull = "full_attention";
constexpr const char* kWindowed = "sliding_attention";

/// Layers of both kinds in their order: all but each so many-th have the window, or all, or none.
void ReadLayerTypes(HuggingFaceKeys& keys, Decoder& d, const std::vector<std::string>& types) {
  for (const std::string& type : types) {
    keys.Require(type == kFull || type == kWindowed, kLayerTypes,
                 fmt::format("expected {} or {}, found '{}'", kFull, kWindowed, type),
                 "layers with another attention cannot be represented");
  }
  keys.Require(std::ssize(types) == d.layers, kLayerTypes,
               fmt::format("expected one for each of the {} layers, found {}", d.layers, types.size()));
  const std::int64_t first = std::find(types.begin(), types.end(), kFull) - types.begin();
  d.full_attention_every = first < std::ssize(types) ? first + 1 : 0;
  if (d.full_attention_every == 1 && std::count(types.begin(), types.end(), kFull) == std::ssize(types)) {
    d.sliding_window = d.full_attention_every = 0;
  }
  for (std::int64_t layer = 0; layer < std::ssize(types); ++layer) {
    keys.Require((d.WindowOf(layer) == 0) == (types[static_cast<std::size_t>(layer)] == kFull), kLayerTypes,
                 fmt::format("expected {} of each so many-th layer, counted from the first one that has it", kFull),
                 "without the key windows are those of its class by default");
  }
}

}  // namespace

void ReadWindow(HuggingFaceKeys& keys, Decoder& d, std::int64_t missing) {
  const std::int64_t window = keys.WholeOrNull("sliding_window", missing, 0, 0);
  d.sliding_window = d.causal ? window : 0;
}

void ReadWindowOfMost(HuggingFaceKeys& keys, Decoder& d, std::int64_t missing, std::int64_t every) {
  ReadWindow(keys, d, missing);
  const std::vector<std::string> types = keys.Words(kLayerTypes);
  if (d.sliding_window == 0) {
    return;
  }
  if (!types.empty()) {
    return ReadLayerTypes(keys, d, types);
  }
  d.full_attention_every = keys.Whole("sliding_window_pattern", every);
  if (d.full_attention_every == 1) {
    d.sliding_window = d.full_attention_every = 0;
  }
}

void ReadUsedWindow(HuggingFaceKeys& keys, Decoder& d) {
  constexpr const char* kFirst = "max_window_layers";
  if (!keys.Truth("use_sliding_window", false)) {
    return;
  }
  ReadWindow(keys, d, 4096);
  const std::vector<std::string> types = keys.Words(kLayerTypes);
  if (!types.empty() && d.sliding_window > 0) {
    return ReadLayerTypes(keys, d, types);
  }
  const std::int64_t first = keys.Whole(kFirst, 28, 0);
  if (first >= d.layers) {
    d.sliding_window = 0;
  }
  keys.Require(d.sliding_window == 0 || first == 0, kFirst,
               fmt::format("expected 0 or the {} layers, found {}", d.layers, first),
               "windows of the last layers alone cannot be represented; use_sliding_window: false prices all layers as "
               "if they attended to all");
}

void RequireNoWindow(HuggingFaceKeys& keys) {
  keys.Require(!keys.Truth("use_sliding_window", false), "use_sliding_window", "expected false",
               "windows of some layers of such a network cannot be represented; false prices all layers as if they "
               "attended to all");
}

}  // namespace tidemark
