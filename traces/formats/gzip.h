// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tidemark {

bool IsGzip(std::string_view bytes);

/// What a gzip file (RFC 1952; several members one after the other as well) holds. Fails with bad_input where it is
/// damaged or cut off, or holds more than `largest_bytes`.
Result<std::string> Inflated(std::string_view bytes, std::int64_t largest_bytes);

/// At least the first `n_bytes` of the same, where it holds as many. What is damaged far behind them is not seen.
Result<std::string> InflatedStart(std::string_view bytes, std::size_t n_bytes);

}  // namespace tidemark
