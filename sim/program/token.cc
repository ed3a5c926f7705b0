// SPDX-License-Identifier: Apache-2.0
#include "sim/program/token.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "base/text.h"

namespace tidemark {
namespace {

bool IsDigit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }
bool IsLetter(char c) { return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_'; }
bool IsSpace(char c) { return c == ' ' || c == '\t' || c == '\r'; }

/// Length of the word at the start of `text`: names hold '.', ':' and '/', but do not end in '.' or ':' and hold no
/// "..".
std::size_t WordLength(std::string_view text) {
  std::size_t length = 1;
  while (length < text.size() && (IsLetter(text[length]) || IsDigit(text[length]) || text[length] == '.' ||
                                  text[length] == ':' || text[length] == '/')) {
    ++length;
  }
  length = std::min(length, text.find(".."));
  while (text[length - 1] == '.' || text[length - 1] == ':') {
    --length;
  }
  return length;
}

}  // namespace

void LineReader::Advance() {
  while (!rest_.empty() && IsSpace(rest_.front())) {
    rest_.remove_prefix(1);
  }
  if (rest_.empty() || rest_.front() == '#') {
    token_ = {};
    return;
  }
  if (rest_.front() == '"') {
    return AdvanceQuoted();
  }
  const auto* const digits = std::find_if_not(rest_.begin(), rest_.end(), IsDigit);
  std::size_t length = static_cast<std::size_t>(digits - rest_.begin());
  token_.kind = Token::Kind::integer;
  if (length == 0 && IsLetter(rest_.front())) {
    token_.kind = Token::Kind::word;
    length = WordLength(rest_);
  } else if (length == 0) {
    token_.kind = Token::Kind::symbol;
    length = rest_.starts_with("..") || rest_.starts_with("->") ? 2 : 1;
  }
  token_.text = rest_.substr(0, length);
  rest_.remove_prefix(length);
}

void LineReader::AdvanceQuoted() {
  token_ = {Token::Kind::quoted, {}};
  for (std::size_t i = 1; i < rest_.size(); ++i) {
    if (rest_[i] == '"') {
      rest_.remove_prefix(i + 1);
      return;
    }
    if (rest_[i] != '\\') {
      token_.text += rest_[i];
      continue;
    }
    const std::string_view escape = rest_.substr(i + 1);
    unsigned value = 0;
    if (escape.starts_with('"') || escape.starts_with('\\')) {
      token_.text += escape.front();
      i += 1;
    } else if (escape.size() >= 3 && escape.front() == 'x' &&
               std::from_chars(escape.data() + 1, escape.data() + 3, value, 16).ptr == escape.data() + 3) {
      token_.text += static_cast<char>(value);
      i += 3;
    } else {
      break;
    }
  }
  token_ = {Token::Kind::broken, std::string(rest_)};
  rest_ = {};
}

bool LineReader::Is(std::string_view text) const {
  return (token_.kind == Token::Kind::word || token_.kind == Token::Kind::symbol) && token_.text == text;
}

bool LineReader::Take(std::string_view text) {
  const bool here = Is(text);
  if (here) {
    Advance();
  }
  return here;
}

Status LineReader::Require(std::string_view text) {
  if (Take(text)) {
    return Done{};
  }
  const std::string candidate(text);
  return Expected(fmt::format("'{}'", text), std::span(&candidate, 1));
}

Result<std::string> LineReader::TakeName(std::string_view what) {
  if (token_.kind != Token::Kind::word && token_.kind != Token::Kind::quoted) {
    return Expected(what);
  }
  std::string name = token_.text;
  Advance();
  return name;
}

Result<std::int64_t> LineReader::TakeInteger(std::string_view what, std::int64_t least, std::int64_t most) {
  LineReader ahead = *this;
  const std::string sign = ahead.Take("-") ? "-" : "";
  const std::string digits = sign + ahead.token_.text;
  std::int64_t number = 0;
  const auto [end, code] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (ahead.token_.kind != Token::Kind::integer) {
    return Expected(what);
  }
  if (code != std::errc() || number < least || number > most) {
    return At(fmt::format("expected {} from {} to {}, found '{}'", what, least, most, digits));
  }
  ahead.Advance();
  *this = ahead;
  return number;
}

Status LineReader::RequireEnd() {
  if (AtEnd()) {
    return Done{};
  }
  return Expected("the end of the line");
}

Error LineReader::Expected(std::string_view what, std::span<const std::string> candidates) const {
  const std::string found = AtEnd() ? "the end of the line" : fmt::format("'{}'", token_.text);
  const std::string nearest = AtEnd() ? std::string() : Nearest(token_.text, candidates);
  return At(fmt::format("expected {}, found {}", what, found),
            nearest.empty() ? std::string() : fmt::format("did you mean '{}'?", nearest));
}

Error LineReader::At(std::string message, std::string hint) const {
  Error error = BadInput(std::move(message), std::move(hint));
  error.where = fmt::format("line {}", number_);
  return error;
}

}  // namespace tidemark
