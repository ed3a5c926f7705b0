// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/axis.h"

#include <fmt/format.h>

#include <cstdint>
#include <limits>
#include <regex>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "models/configs/flatten.h"
#include "models/configs/value.h"
#include "models/job/fields.h"

namespace tidemark {
namespace {

constexpr std::size_t kMostValues = 1'000'000;
constexpr const char* kExample = "for example --vary micro_batch_size=1,2,4 or --vary accumulation_steps=1..64:x2";

constexpr const char* kRanges =
    "a range is of whole numbers: 1..8, 8..64:+8 (in steps of 8) or 1..64:x2 (in powers of two); name others one "
    "by one: 6GiB,7GiB";

/// "8..64:+8"
struct Range {
  std::int64_t first = 0, last = 0, step = 1;
  bool multiplies = false;

  /// False behind the last.
  bool Advance(std::int64_t& value) const {
    const bool fits = multiplies ? value <= last / step : value <= last - step;
    value = fits ? (multiplies ? value * step : value + step) : value;
    return fits;
  }
};

Status AddRange(const std::smatch& parts, SweepAxis& axis) {
  const auto first = ParseWhole(parts[1].str()), last = ParseWhole(parts[2].str());
  const auto step = parts[4].matched ? ParseWhole(parts[4].str()) : std::optional<std::int64_t>(1);
  const Range range{first.value_or(0), last.value_or(0), step.value_or(0), parts[3] == "x"};
  const bool moves = range.multiplies ? range.step > 1 && range.first > 0 : range.step > 0;
  if (!first || !last || !moves || range.first > range.last) {
    return BadInput(fmt::format("the range '{}' does not lead from its first number to its last", parts[0].str()),
                    kRanges);
  }
  std::int64_t value = range.first;
  do {
    if (axis.values.size() == kMostValues) {
      return BadInput(fmt::format("more than {} values", Grouped(std::int64_t{kMostValues})), "name fewer of them");
    }
    axis.values.push_back(std::to_string(value));
  } while (range.Advance(value));
  return Done{};
}

Status CheckDistinct(const SweepAxis& axis) {
  std::unordered_set<std::string> seen;
  for (const std::string& value : axis.values) {
    const std::optional<std::int64_t> number = ParseWhole(value);  // 08 is 8
    if (!seen.insert(number ? std::to_string(*number) : value).second) {
      return BadInput(fmt::format("{} is given twice", value), "name each value once");
    }
  }
  return Done{};
}

/// A plain value as YAML says it: with quotes where it would be something else without.
std::string AsYaml(const std::string& text) {
  const Result<ConfigValue> again = ParseConfig(text, "");
  if (again && again->kind == ConfigValue::Kind::scalar && again->text == text) {
    return text;
  }
  std::string quoted = "\"";
  for (const char letter : text) {
    quoted += letter == '"' || letter == '\\' ? std::string("\\") + letter : std::string(1, letter);
  }
  return quoted + "\"";
}

Result<SweepAxis> ParseAt(std::string_view text, const std::string& place) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return BadInput("expected key=value,value,...", kExample);
  }
  SweepAxis axis{std::string(text.substr(0, equals)), {}};
  // A list of YAML, so that quotes and colons are YAML's.
  const std::string list = fmt::format("[{}]", text.substr(equals + 1));
  const Result<ConfigValue> parsed = ParseConfig(list, place);
  if (!parsed || parsed->kind != ConfigValue::Kind::list) {
    return BadInput("expected key=value,value,...", kExample);
  }
  if (!JobKeys().contains(axis.key)) {
    Error error = UnknownKey(*parsed, axis.key, JobKeys());
    error.where.clear();
    return error;
  }
  // "1..", "..8", and two numbers with fractions, exponents or units: no path of a file looks like these.
  static const std::regex kAlmostRange(R"(^-?\d+\.\.|^\.\.-?\d+$|^-?\d[\d.]*(e[-+]?\d+)? ?[A-Za-z]*\.\.-?\d)");
  static const std::regex kRange(R"((\d+)\.\.(\d+)(?::([+x])(\d+))?)");
  for (const ConfigValue& item : parsed->items) {
    std::smatch range;
    if (item.kind == ConfigValue::Kind::null && !NullableJobKeys().contains(axis.key)) {
      return BadInput("a value is empty", kExample);
    }
    if (item.kind != ConfigValue::Kind::scalar && item.kind != ConfigValue::Kind::null) {
      return BadInput(fmt::format("expected plain values, found {}", Describe(item)),
                      "vary each key of a section by a --vary of its own");
    }
    if (item.is_null()) {
      axis.values.emplace_back("null");
    } else if (std::regex_match(item.text, range, kRange)) {
      TIDEMARK_TRY(AddRange(range, axis));
    } else if (std::regex_search(item.text, kAlmostRange)) {
      return BadInput(fmt::format("'{}' is no range", item.text), kRanges);
    } else {
      axis.values.push_back(AsYaml(item.text));
    }
  }
  if (axis.values.empty()) {
    return BadInput("there are no values", kExample);
  }
  TIDEMARK_TRY(CheckDistinct(axis));
  return axis;
}

}  // namespace

std::optional<std::vector<std::int64_t>> NumbersOf(const SweepAxis& axis) {
  std::vector<std::int64_t> numbers;
  for (const std::string& value : axis.values) {
    const std::optional<std::int64_t> number = ParseWhole(value);
    if (!number) {
      return std::nullopt;
    }
    numbers.push_back(*number);
  }
  return numbers;
}

Result<SweepAxis> ParseSweepAxis(std::string_view text) {
  const std::string place = fmt::format("--vary {}", text);
  Result<SweepAxis> axis = ParseAt(text, place);
  return axis ? std::move(axis) : std::move(axis).At(place);
}

}  // namespace tidemark
