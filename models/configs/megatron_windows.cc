// SPDX-License-Identifier: Apache-2.0
#include "models/configs/megatron_windows.h"

#include <fmt/format.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "models/configs/layer_pattern.h"
#include "models/configs/window_pattern.h"
#include "models/network/network.h"

namespace tidemark {
namespace {

constexpr std::string_view kSize = "window-size", kSkip = "window-attn-skip-freq";

std::optional<std::int64_t> NumberOf(std::string_view text) {
  std::int64_t number = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), number);
  return fault == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

/// Tokens before a query that it sees, of "4096,0" or "(4096,0)": those and those behind it; -1: all.
std::optional<std::int64_t> TokensBefore(std::string_view text) {
  if (text.starts_with('(') && text.ends_with(')')) {
    text = text.substr(1, text.size() - 2);
  }
  const std::size_t comma = text.find(',');
  if (comma == std::string_view::npos) {
    return std::nullopt;
  }
  const std::optional<std::int64_t> before = NumberOf(text.substr(0, comma)), behind = NumberOf(text.substr(comma + 1));
  const bool is_causal = behind == 0 || behind == -1;  // what stands behind a query, a causal mask hides
  return before && *before >= -1 && *before < Decoder::kMostRows && is_causal ? before : std::nullopt;
}

/// is_layer_window_attention of megatron/core/transformer/utils.py: layers are counted from 1, and each so many-th, or
/// each whose element of a list is 0, has no window. 0: all have it, 1: none.
Result<std::int64_t> ReadEvery(const ToolFields& fields) {
  if (!fields.Has(kSkip)) {
    return 0;
  }
  const std::string text = PatternText(fields.Value(kSkip, ""));
  if (const std::optional<std::int64_t> number = NumberOf(text)) {
    return fields.Read(WholeNumber{1, Decoder::kMostLayers}, kSkip, "");
  }
  TIDEMARK_ASSIGN(const std::int64_t layers, fields.Whole("num-layers", 0));
  const std::optional<std::vector<bool>> have = ReadLayerPattern(text, layers);
  if (!have || std::ssize(*have) != layers) {
    return fields.Refuse(kSkip, "",
                         fmt::format("expected a number or a list of {} ones and zeros, found '{}'", layers, text),
                         "4, for example, or ([1]*3+[0]*1)*8, of which each fourth layer has no window");
  }
  const std::optional<std::int64_t> every = FullAttentionEvery(*have);
  return every ? Result<std::int64_t>(*every)
               : fields.Refuse(kSkip, "",
                               "layers without a window that are not each so many-th are not supported by this version",
                               "give a number to price that");
}

}  // namespace

Status ReadMegatronWindows(const ToolFields& fields, Settings& settings) {
  if (!fields.Has(kSize)) {
    return Done{};
  }
  const std::string text = fields.Value(kSize, "").text;
  const std::optional<std::int64_t> before = TokensBefore(text);
  if (!before) {
    return fields.Refuse(kSize, "", fmt::format("expected the tokens before one and 0 behind it, found '{}'", text),
                         "for example 4096,0; -1 are all tokens");
  }
  TIDEMARK_ASSIGN(const std::int64_t every, ReadEvery(fields));
  if (*before >= 0 && every != 1) {
    settings["network.sliding_window"] = fields.Retold(kSize, "", std::to_string(*before + 1));
    settings["network.full_attention_every"] =
        fields.Retold(fields.Has(kSkip) ? kSkip : kSize, "", std::to_string(every));
  }
  return Done{};
}

}  // namespace tidemark
