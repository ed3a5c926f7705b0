// SPDX-License-Identifier: Apache-2.0
#include "models/configs/field.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/text.h"

namespace tidemark {
namespace {

Error Expected(const std::string& what, const ConfigValue& value) {
  return BadInput(fmt::format("expected {}, found {}", what, Describe(value)));
}

/// "0.5", "1.5 B": what is written in larger units may be rounded to whole bytes.
bool IsFractionOfBytes(const std::string& text) {
  double number = 0;
  const char* end = text.data() + text.size();
  const char* rest = std::from_chars(text.data(), end, number).ptr;
  const bool in_bytes =
      std::all_of(rest, end, [](char letter) { return letter == ' ' || letter == 'b' || letter == 'B'; });
  return in_bytes && number != std::floor(number);
}

}  // namespace

Error Explain(Error error, const ConfigValue& value, const std::string& key, const std::string& example) {
  error.where = fmt::format("{}: {}", value.where, key);
  const std::string shown = example.empty() ? "" : fmt::format("for example {}: {}", key, example);
  if (value.is_null()) {
    error.hint =
        fmt::format("write a value{}{}, or leave the key out for its default", shown.empty() ? "" : ", ", shown);
  } else if (error.hint.empty()) {
    error.hint = shown;
  }
  return error;
}

Result<std::int64_t> WholeNumber::Read(const ConfigValue& value) const {
  std::int64_t number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [rest, code] = std::from_chars(value.text.data(), end, number);
  const bool is_number = value.kind == ConfigValue::Kind::scalar && rest == end && !value.text.empty();
  if (!is_number) {
    return Expected("a whole number", value);
  }
  if (code == std::errc::result_out_of_range || number < low || number > high) {
    return Expected(fmt::format("a whole number from {} to {}", low, high), value);
  }
  return number;
}

Result<double> RealNumber::Read(const ConfigValue& value) const {
  double number = 0;
  const char* end = value.text.data() + value.text.size();
  const auto [rest, code] = std::from_chars(value.text.data(), end, number);
  const bool is_number = value.kind == ConfigValue::Kind::scalar && rest == end && code == std::errc();
  if (!is_number || !(number >= low && number <= high)) {
    return Expected(fmt::format("a number from {} to {}", low, high), value);
  }
  return number;
}

Result<bool> Truth::Read(const ConfigValue& value) const {
  if (value.kind == ConfigValue::Kind::scalar) {
    if (value.text == "true" || value.text == "True") {
      return true;
    }
    if (value.text == "false" || value.text == "False") {
      return false;
    }
  }
  return Expected("true or false", value);
}

Result<Bytes> Size::Read(const ConfigValue& value) const {
  if (value.kind != ConfigValue::Kind::scalar) {
    return Expected("a size", value);
  }
  TIDEMARK_ASSIGN(const Bytes bytes, ParseBytes(value.text));
  if (IsFractionOfBytes(value.text)) {
    return Expected("a whole number of bytes, or a size with a larger unit", value);
  }
  if (bytes < low) {
    return Expected(fmt::format("a size of at least {}", Text(low)), value);
  }
  return bytes;
}

Result<Nanos> Time::Read(const ConfigValue& value) const {
  if (value.kind != ConfigValue::Kind::scalar) {
    return Expected("a time with its unit", value);
  }
  TIDEMARK_ASSIGN(const Nanos nanos, ParseNanos(value.text));
  if (nanos > Nanos(1'000'000'000)) {
    return Expected("a time of at most 1 s", value);
  }
  return nanos;
}

// Slower than 1 kB/s or 1 MFLOP/s is a typing mistake, and would let durations overflow.
Result<BytesPerSec> Bandwidth::Read(const ConfigValue& value) const {
  if (value.kind != ConfigValue::Kind::scalar) {
    return Expected("a bandwidth with its unit", value);
  }
  TIDEMARK_ASSIGN(const BytesPerSec rate, ParseBytesPerSec(value.text));
  if (rate < BytesPerSec(1e3)) {
    return Expected("a bandwidth of at least 1000 B/s", value);
  }
  return rate;
}

Result<FlopsPerSec> Arithmetic::Read(const ConfigValue& value) const {
  if (value.kind != ConfigValue::Kind::scalar) {
    return Expected("a rate of arithmetic with its unit", value);
  }
  TIDEMARK_ASSIGN(const FlopsPerSec rate, ParseFlopsPerSec(value.text));
  if (rate < FlopsPerSec(1e6)) {
    return Expected("a rate of at least 1000000 FLOP/s", value);
  }
  return rate;
}

Result<std::string> Word::Read(const ConfigValue& value) const {
  if (value.kind != ConfigValue::Kind::scalar || value.text.empty()) {
    return Expected("a word", value);
  }
  return value.text;
}

Result<std::string> Day::Read(const ConfigValue& value) const {
  int year = 0, month = 0, day = 0, length = 0;
  const bool scalar = value.kind == ConfigValue::Kind::scalar;
  if (!scalar || value.text.size() != Example().size() ||
      std::sscanf(value.text.c_str(), "%4d-%2d-%2d%n", &year, &month, &day, &length) != 3 ||
      static_cast<std::size_t>(length) != value.text.size() ||
      !std::chrono::year_month_day(std::chrono::year(year), std::chrono::month(static_cast<unsigned>(month)),
                                   std::chrono::day(static_cast<unsigned>(day)))
           .ok()) {
    return Expected("a day, as year-month-day", value);
  }
  return value.text;
}

std::string Day::Write(const std::string& day) const { return QuoteYaml(day); }

std::string Word::Write(const std::string& word) const { return QuoteYaml(word); }

Error NotAChoice(const ConfigValue& value, const std::vector<std::string>& choices,
                 const std::vector<std::string>& later) {
  const std::string supported = fmt::format("{}", fmt::join(choices, ", "));
  if (value.kind == ConfigValue::Kind::scalar && std::find(later.begin(), later.end(), value.text) != later.end()) {
    return BadInput(fmt::format("{} is not supported by this version", Describe(value)), "supported: " + supported);
  }
  Error error = Expected("one of " + supported, value);
  if (const std::string nearest = Nearest(value.text, choices); !nearest.empty()) {
    error.hint = fmt::format("did you mean {}?", nearest);
  }
  return error;
}

Choice<DType> FloatingPoint() {
  return {{{"bf16", DType::bf16}, {"fp16", DType::fp16}, {"fp32", DType::fp32}, {"fp64", DType::fp64}}, {"fp8"}};
}

std::string QuoteYaml(std::string_view text) {
  const auto plain = [](unsigned char letter) {
    return std::isalnum(letter) != 0 || letter == '-' || letter == '_' || letter == '.' || letter == '/' ||
           letter == '+';
  };
  const bool is_plain = !text.empty() && text.front() != '-' && text != "null" && text != "Null" && text != "NULL" &&
                        std::all_of(text.begin(), text.end(), plain);
  // JSON strings are YAML's double-quoted scalars.
  return is_plain ? std::string(text)
                  : nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace tidemark
