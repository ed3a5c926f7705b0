// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace tidemark {

/// A piece of a line of program text.
struct Token {
  enum class Kind : std::uint8_t { word, quoted, integer, symbol, end, broken } kind = Kind::end;
  std::string text;  ///< without quotes and escapes; of a broken token, as it stands
};

/// One line of program text, read token by token. Cheap to copy, so that a reader can look ahead.
class LineReader {
 public:
  LineReader(std::string_view line, std::size_t number) : rest_(line), number_(number) { Advance(); }

  const Token& token() const { return token_; }
  bool AtEnd() const { return token_.kind == Token::Kind::end; }

  /// Goes on if the token is this word or symbol (a quoted name never is).
  bool Take(std::string_view text);
  /// Take, or an error.
  Status Require(std::string_view text);
  /// The word that is here; the token stays.
  bool Is(std::string_view text) const;

  /// A bare or quoted name; `what` says of what kind, with its article.
  Result<std::string> TakeName(std::string_view what);
  Result<std::int64_t> TakeInteger(std::string_view what, std::int64_t least, std::int64_t most);
  Status RequireEnd();

  /// "expected `what`, found '...'" at this line, with the nearest of `candidates` as a hint.
  Error Expected(std::string_view what, std::span<const std::string> candidates = {}) const;
  Error At(std::string message, std::string hint = {}) const;

  void Advance();

 private:
  void AdvanceQuoted();

  std::string_view rest_;
  std::size_t number_;
  Token token_;
};

}  // namespace tidemark
