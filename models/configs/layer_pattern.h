// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/configs/value.h"

namespace tidemark {

/// Parentheses within each other around a list, as many as CPython takes: 200 brackets with the list's own.
inline constexpr int kDeepestPattern = 199;

/// Which of `layers` layers have experts, by the value of Megatron-LM's --moe-layer-freq (arguments.py, moe_freq_type):
/// every n-th from the first one on where it is a number n, else the list that Python makes of it, of whatever length:
/// "([0]*3+[1]*58)". Nothing where it is neither, or more than kDeepestPattern parentheses lie within each other.
std::optional<std::vector<bool>> ReadLayerPattern(std::string_view text, std::int64_t layers);

/// Its text, of which a shell has made several words where it has spaces and nobody quoted it.
std::string PatternText(const ConfigValue& value);

}  // namespace tidemark
