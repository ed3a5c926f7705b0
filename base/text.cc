// SPDX-License-Identifier: Apache-2.0
#include "base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

namespace tidemark {
namespace {

/// Of UTF-8: no character begins here.
bool ContinuesCharacter(char c) { return (c & 0xC0) == 0x80; }

struct Unit {
  double size;
  const char* name;
};

/// Three significant digits, but never a bare exponent; units are listed from the smallest.
std::string InUnits(double value, std::span<const Unit> units) {
  const Unit* unit = &units.front();
  for (const Unit& candidate : units) {
    if (std::abs(value) >= candidate.size * 0.9995) {
      unit = &candidate;
    }
  }
  const double scaled = value / unit->size;
  const double magnitude = std::abs(scaled);
  if (unit == &units.front() && magnitude == std::floor(magnitude)) {
    return fmt::format("{:.0f} {}", scaled, unit->name);
  }
  const int digits = magnitude >= 99.95 ? 0 : magnitude >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", scaled, digits, unit->name);
}

constexpr double kKibi = 1024.0;
constexpr std::array kBinary = {Unit{1, "B"}, Unit{kKibi, "KiB"}, Unit{kKibi * kKibi, "MiB"},
                                Unit{kKibi * kKibi * kKibi, "GiB"}, Unit{kKibi * kKibi * kKibi * kKibi, "TiB"}};
constexpr std::array kTime = {Unit{1, "ns"}, Unit{1e3, "us"}, Unit{1e6, "ms"}, Unit{1e9, "s"}};
constexpr std::array kFlop = {Unit{1, "FLOP"},    Unit{1e3, "KFLOP"},  Unit{1e6, "MFLOP"},
                              Unit{1e9, "GFLOP"}, Unit{1e12, "TFLOP"}, Unit{1e15, "PFLOP"}};
constexpr std::array kFlopRate = {Unit{1, "FLOP/s"}, Unit{1e6, "MFLOP/s"}, Unit{1e9, "GFLOP/s"}, Unit{1e12, "TFLOP/s"},
                                  Unit{1e15, "PFLOP/s"}};
constexpr std::array kByteRate = {Unit{1, "B/s"}, Unit{1e3, "kB/s"}, Unit{1e6, "MB/s"}, Unit{1e9, "GB/s"},
                                  Unit{1e12, "TB/s"}};

struct Suffix {
  std::string_view name;
  double size;
};
constexpr std::array kByteSuffixes = {Suffix{"", 1},
                                      Suffix{"b", 1},
                                      Suffix{"kb", 1e3},
                                      Suffix{"mb", 1e6},
                                      Suffix{"gb", 1e9},
                                      Suffix{"tb", 1e12},
                                      Suffix{"kib", kKibi},
                                      Suffix{"mib", kKibi* kKibi},
                                      Suffix{"gib", kKibi* kKibi* kKibi},
                                      Suffix{"tib", kKibi* kKibi* kKibi* kKibi}};
constexpr std::array kTimeSuffixes = {Suffix{"ns", 1}, Suffix{"us", 1e3}, Suffix{"ms", 1e6}, Suffix{"s", 1e9}};
constexpr std::array kByteRateSuffixes = {Suffix{"b/s", 1}, Suffix{"mb/s", 1e6}, Suffix{"gb/s", 1e9},
                                          Suffix{"tb/s", 1e12}, Suffix{"gbit/s", 1e9 / 8}};
constexpr std::array kFlopRateSuffixes = {Suffix{"flop/s", 1}, Suffix{"gflop/s", 1e9}, Suffix{"tflop/s", 1e12},
                                          Suffix{"pflop/s", 1e15}};

/// A number and one of the suffixes, in the suffixes' base unit; negative when it is not that. Case does not matter.
double ParseNumber(std::string_view text, std::span<const Suffix> suffixes) {
  double number = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (code != std::errc() || !(number >= 0)) {
    return -1;
  }
  std::string suffix;
  for (const char letter : text.substr(static_cast<std::size_t>(end - text.data()))) {
    if (letter != ' ') {
      suffix += static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
    }
  }
  const auto found =
      std::find_if(suffixes.begin(), suffixes.end(), [&](const Suffix& candidate) { return candidate.name == suffix; });
  return found == suffixes.end() ? -1 : number * found->size;
}

}  // namespace

std::string Text(Bytes bytes) { return InUnits(static_cast<double>(bytes.count()), kBinary); }
std::string Text(Nanos nanos) { return InUnits(static_cast<double>(nanos.count()), kTime); }
std::string Text(Flops flops) { return InUnits(static_cast<double>(flops.count()), kFlop); }
std::string Text(BytesPerSec rate) { return InUnits(rate.per_second(), kByteRate); }
std::string Text(FlopsPerSec rate) { return InUnits(rate.per_second(), kFlopRate); }

std::string Signed(Bytes bytes) { return (bytes > Bytes(0) ? "+" : "") + Text(bytes); }
std::string Signed(Nanos nanos) { return (nanos > Nanos(0) ? "+" : "") + Text(nanos); }

std::string Grouped(std::int64_t number) {
  std::string digits = std::to_string(number);
  const std::size_t first = number < 0 ? 1 : 0;
  for (std::size_t at = digits.size(); at > first + 3; at -= 3) {
    digits.insert(at - 3, 1, ',');
  }
  return digits;
}

std::string Counted(std::int64_t count, std::string_view noun) {
  const bool hisses = noun.ends_with("ch") || noun.ends_with("sh") || noun.ends_with("s");
  return fmt::format("{} {}{}", Grouped(count), noun, count == 1 ? "" : hisses ? "es" : "s");
}

Result<Bytes> ParseBytes(std::string_view text) {
  const double bytes = std::round(ParseNumber(text, kByteSuffixes));
  if (bytes < 0) {
    return BadInput(fmt::format("'{}' is not a size", text),
                    "write a number with a unit, for example 80GiB, 512MiB or 24 GB");
  }
  if (!(bytes <= 0x1p62)) {
    return BadInput(fmt::format("'{}' is more than 2^62 bytes", text), "write a size that a machine can have");
  }
  return Bytes(static_cast<std::int64_t>(bytes));
}

Result<Nanos> ParseNanos(std::string_view text) {
  const double nanos = std::round(ParseNumber(text, kTimeSuffixes));
  if (!(nanos >= 0 && nanos < 4.6e18)) {
    return BadInput(fmt::format("'{}' is not a time", text), "write a number with a unit, for example 4 us or 250 ns");
  }
  return Nanos(static_cast<std::int64_t>(nanos));
}

Result<BytesPerSec> ParseBytesPerSec(std::string_view text) {
  const double rate = ParseNumber(text, kByteRateSuffixes);
  if (!(rate >= 0 && rate < 1e18)) {
    return BadInput(fmt::format("'{}' is not a bandwidth", text),
                    "write a number with a unit, for example 3.35 TB/s or 400 Gbit/s");
  }
  return BytesPerSec(rate);
}

Result<FlopsPerSec> ParseFlopsPerSec(std::string_view text) {
  const double rate = ParseNumber(text, kFlopRateSuffixes);
  if (!(rate >= 0 && rate < 1e21)) {
    return BadInput(fmt::format("'{}' is not a rate of arithmetic", text),
                    "write a number with a unit, for example 989.4 TFLOP/s");
  }
  return FlopsPerSec(rate);
}

std::optional<std::int64_t> ParseWhole(std::string_view text) {
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [at, fault] = std::from_chars(text.data(), end, number);
  return fault == std::errc() && at == end ? std::optional(number) : std::nullopt;
}

std::string Excerpt(std::string_view text, std::size_t at) {
  constexpr std::size_t kMost = 60;
  if (text.size() <= kMost) {
    return std::string(text);
  }
  std::size_t begin = std::min(at - std::min(at, kMost / 2), text.size() - kMost);
  std::size_t end = begin + kMost;
  while (begin < end && ContinuesCharacter(text[begin])) {
    ++begin;
  }
  while (end > begin && end < text.size() && ContinuesCharacter(text[end])) {
    --end;
  }
  return fmt::format("{}{}{}", begin > 0 ? "..." : "", text.substr(begin, end - begin), end < text.size() ? "..." : "");
}

std::int64_t CountCharacters(std::string_view text) {
  return std::ssize(text) - std::count_if(text.begin(), text.end(), ContinuesCharacter);
}

std::string LowerCase(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text;
}

std::size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last(b.size() + 1), row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 0; i < a.size(); ++i) {
    before = std::exchange(last, row);
    row[0] = i + 1;
    for (std::size_t j = 0; j < b.size(); ++j) {
      row[j + 1] = std::min({last[j] + (a[i] == b[j] ? 0 : 1), row[j] + 1, last[j + 1] + 1});
      if (i > 0 && j > 0 && a[i] == b[j - 1] && a[i - 1] == b[j]) {
        row[j + 1] = std::min(row[j + 1], before[j - 1] + 1);
      }
    }
  }
  return row.back();
}

std::string Nearest(std::string_view word, std::span<const std::string> candidates) {
  std::string best;
  // Up to a third of the letters or two may be wrong, but never all of them.
  std::size_t best_distance = std::min(word.size(), std::max<std::size_t>(2, word.size() / 3) + 1);
  for (const std::string& candidate : candidates) {
    if (const std::size_t distance = EditDistance(word, candidate); distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  constexpr std::size_t kLeastLetters = 3;
  if (word.size() < kLeastLetters || best_distance == 0) {
    return best;
  }
  const std::string* begun = nullptr;
  for (const std::string& candidate : candidates) {
    if (candidate.starts_with(word) && (begun == nullptr || candidate.size() < begun->size())) {
      begun = &candidate;
    }
  }
  return begun == nullptr ? best : *begun;
}

}  // namespace tidemark
