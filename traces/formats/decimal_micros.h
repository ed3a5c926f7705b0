// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string_view>

#include "base/quantity.h"

namespace tidemark {

/// Microseconds in decimal, as text: "1722334455667788.123" is exactly that many nanoseconds, which no double holds.
/// Beyond the third decimal it rounds. Nothing where it is no number, or not within
/// 2^61 ns (73 years) of 0, so that sums of three do not overflow.
std::optional<Nanos> NanosOfMicros(std::string_view text);

}  // namespace tidemark
