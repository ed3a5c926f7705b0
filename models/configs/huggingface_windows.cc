// SPDX-License-Identifier: Apache-2.0
#include "models/configs/huggingface_windows.h"

#include <fmt/format.h>

#include <optional>
#include <string>
#include <vector>

#include "models/configs/window_pattern.h"

namespace tidemark {
namespace {

constexpr const char* kLayerTypes = "layer_types";
constexpr const char* kFull = "full_attention";
constexpr const char* kWindowed = "sliding_attention";

/// The windows of each so many-th layer, of all where that is the first.
void LeaveOut(Decoder& d, std::int64_t every) {
  d.sliding_window = every == 1 ? 0 : d.sliding_window;
  d.full_attention_every = every == 1 || every > d.layers ? 0 : every;
}

/// Layers of both kinds in their order.
void ReadLayerTypes(HuggingFaceKeys& keys, Decoder& d, const std::vector<std::string>& types) {
  std::vector<bool> has_window;
  for (const std::string& type : types) {
    keys.Require(type == kFull || type == kWindowed, kLayerTypes,
                 fmt::format("expected {} or {}, found '{}'", kFull, kWindowed, type),
                 "layers with another attention cannot be represented");
    has_window.push_back(type == kWindowed);
  }
  keys.Require(std::ssize(types) == d.layers, kLayerTypes,
               fmt::format("expected one for each of the {} layers, found {}", d.layers, types.size()));
  const std::optional<std::int64_t> every = FullAttentionEvery(has_window);
  keys.Require(every.has_value(), kLayerTypes,
               fmt::format("expected {} of each so many-th layer, counted from the first one that has it", kFull),
               "other orders cannot be represented; sliding_window: null prices all layers as if they attended to all");
  LeaveOut(d, every.value_or(0));
}

}  // namespace

void ReadWindow(HuggingFaceKeys& keys, Decoder& d, std::int64_t missing) {
  const std::int64_t window = keys.WholeOrNull("sliding_window", missing, 0, 0);
  d.sliding_window = d.causal && window <= Decoder::kMostRows ? window : 0;  // no sequence is longer
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
  LeaveOut(d, every);
}

void ReadWindowByPattern(HuggingFaceKeys& keys, Decoder& d, std::int64_t missing, std::int64_t every) {
  ReadWindowOfMost(keys, d, missing, every);
  keys.Has("_sliding_window_pattern");  // which transformers writes and does not read
  if (d.sliding_window > 0 && !keys.Has(kLayerTypes)) {
    LeaveOut(d, keys.Whole("sliding_window_pattern", every));
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

void RequireNoWindow(HuggingFaceKeys& keys, std::int64_t missing) {
  const std::int64_t window = keys.WholeOrNull("sliding_window", missing, 0, 0);
  keys.Require(!keys.Truth("use_sliding_window", false) || window == 0, "use_sliding_window", "expected false",
               "windows of some layers of such a network cannot be represented; false prices all layers as if they "
               "attended to all");
}

}  // namespace tidemark
