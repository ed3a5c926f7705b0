// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/quantity.h"
#include "base/result.h"

namespace tidemark {

// The one place that turns a quantity into text and back.

/// Three significant digits in binary units: "606 MiB", "1.25 GiB", "-12 B".
std::string Text(Bytes bytes);
/// "318 ns", "4.31 ms", "2.05 s".
std::string Text(Nanos nanos);
/// Three significant digits in decimal units: "1.20 GFLOP".
std::string Text(Flops flops);
std::string Text(BytesPerSec rate);
std::string Text(FlopsPerSec rate);
/// A difference, with its sign: "+606 MiB", "-4.31 ms", "0 B".
std::string Signed(Bytes bytes);
std::string Signed(Nanos nanos);
/// All digits in groups of three: "606,375,936".
std::string Grouped(std::int64_t number);
/// "1 rank", "1,024 ranks", "2 microbatches", "2 cache flushes", "2 processes": of nouns with a regular plural.
std::string Counted(std::int64_t count, std::string_view noun);

/// "80GiB", "24 GiB", "512 MB", "1048576" (bytes). Refuses negative numbers and more than 2^62 bytes.
Result<Bytes> ParseBytes(std::string_view text);
/// "4.5 us", "250 ns". The unit must be there.
Result<Nanos> ParseNanos(std::string_view text);
/// "3.35 TB/s", "400 Gbit/s". The unit must be there.
Result<BytesPerSec> ParseBytesPerSec(std::string_view text);
/// "989.4 TFLOP/s"; multiply-adds count two. The unit must be there.
Result<FlopsPerSec> ParseFlopsPerSec(std::string_view text);

/// "-12": digits with a sign at most, and nothing else; nothing where that is not 64 bits.
std::optional<std::int64_t> ParseWhole(std::string_view text);

/// What a message shows of a text that a user wrote, UTF-8: at most 60 bytes of it, those around `at`, with "..." where
/// it was cut, which is never inside a character.
std::string Excerpt(std::string_view text, std::size_t at);

/// Characters of UTF-8 text.
std::int64_t CountCharacters(std::string_view text);

/// The same with small letters; what is not ASCII stays.
std::string LowerCase(std::string text);

/// Letters to insert, remove, replace or swap with their neighbours to make one word of the other.
std::size_t EditDistance(std::string_view a, std::string_view b);

/// The candidate nearest to `word`: itself, else the shortest one that it begins ("ddp" of "ddp-last"; not with one or
/// two letters), else by edit distance; empty when none is near enough to be a typing mistake.
std::string Nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace tidemark
