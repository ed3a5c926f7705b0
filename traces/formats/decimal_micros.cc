// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/decimal_micros.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <system_error>

namespace tidemark {
namespace {

constexpr std::int64_t kFarthest = std::int64_t{1} << 61;  ///< ns

std::int64_t Digit(char c) { return c >= '0' && c <= '9' ? c - '0' : -1; }

/// With an exponent, as some writers print large times; a double is all that there is.
std::optional<Nanos> NanosOfDouble(std::string_view text) {
  double micros = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), micros);
  if (fault != std::errc() || end != text.data() + text.size() ||
      !(std::abs(micros) < static_cast<double>(kFarthest) / 1000)) {
    return std::nullopt;
  }
  return Nanos(std::llround(micros * 1000));
}

}  // namespace

std::optional<Nanos> NanosOfMicros(std::string_view text) {
  const bool negative = text.starts_with('-');
  std::size_t at = negative ? 1 : 0;
  if (at == text.size() || Digit(text[at]) < 0) {
    return std::nullopt;
  }
  std::int64_t nanos = 0;
  for (; at < text.size() && Digit(text[at]) >= 0; ++at) {
    nanos = nanos * 10 + Digit(text[at]);
    if (nanos > kFarthest / 1000) {
      return std::nullopt;
    }
  }
  nanos *= 1000;
  if (at < text.size() && text[at] == '.') {
    std::int64_t unit = 100;
    for (++at; at < text.size() && Digit(text[at]) >= 0; ++at, unit /= 10) {
      nanos += Digit(text[at]) * unit;
      if (unit == 0) {  // the fourth decimal rounds, the others do not matter
        nanos += Digit(text[at]) >= 5 ? 1 : 0;
        at = std::min(text.find_first_not_of("0123456789", at), text.size());
        break;
      }
    }
  }
  if (at < text.size()) {
    return NanosOfDouble(text);
  }
  return Nanos(negative ? -nanos : nanos);
}

}  // namespace tidemark
