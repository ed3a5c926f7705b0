// SPDX-License-Identifier: Apache-2.0
#include "base/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <utility>

namespace tidemark {
namespace {

// What is parsed by recursion stays shallow.
constexpr std::size_t kLongestText = 1000;
constexpr int kDeepest = 100;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
/// Letters beyond ASCII count, so that no message cuts one in two.
bool IsWordCharacter(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & 0x80) != 0;
}
bool IsSpace(char c) { return c == ' ' || c == '\t'; }

}  // namespace

/// One function per level of Python's grammar, the loosest binding first. Each returns the index of the node that it
/// made; after the first fault, whose reason is kept, all return at once.
class ExpressionParser {
 public:
  ExpressionParser(std::string_view text, const std::vector<std::string>& names) : text_(text), names_(names) {
    Advance();
  }

  Result<Expression> Run() && {
    Expression expression;
    expression.root_ = Or();
    if (fault_.empty() && !token_.empty()) {
      Fail(fmt::format("'{}' is not expected", token_));
    }
    if (!fault_.empty()) {
      return BadInput(fmt::format("'{}' is not an expression: {}", text_, fault_),
                      fmt::format("write whole numbers, {}, + - * // %, comparisons, and, or, not, parentheses",
                                  fmt::join(names_, ", ")));
    }
    expression.text_ = text_;
    expression.names_ = names_.size();
    expression.nodes_ = std::move(nodes_);
    return expression;
  }

 private:
  using Operation = Expression::Operation;
  struct Symbol {
    std::string_view text;
    Operation operation;
  };

  static std::optional<Operation> Among(std::span<const Symbol> symbols, std::string_view token) {
    const auto found = std::find_if(symbols.begin(), symbols.end(), [&](const Symbol& s) { return s.text == token; });
    return found == symbols.end() ? std::nullopt : std::optional(found->operation);
  }

  void Fail(std::string reason) {
    if (fault_.empty()) {
      fault_ = std::move(reason);
    }
    token_ = {};
    rest_ = {};
  }

  /// The next token: a word (a number is one), or one or two other characters; empty at the end.
  void Advance() {
    std::size_t begin = text_.size() - rest_.size();
    while (begin < text_.size() && IsSpace(text_[begin])) {
      ++begin;
    }
    std::size_t end = begin;
    while (end < text_.size() && IsWordCharacter(text_[end])) {
      ++end;
    }
    if (end == begin && end < text_.size()) {
      constexpr std::array<std::string_view, 5> kPairs = {"<=", ">=", "==", "!=", "//"};
      const std::string_view pair = text_.substr(begin, 2);
      end += std::find(kPairs.begin(), kPairs.end(), pair) != kPairs.end() ? 2 : 1;
    }
    token_ = text_.substr(begin, end - begin);
    rest_ = text_.substr(end);
  }

  bool Take(std::string_view token) {
    const bool is_next = token_ == token;
    if (is_next) {
      Advance();
    }
    return is_next;
  }

  std::int64_t Make(Operation operation, std::int64_t left, std::int64_t right = 0) {
    nodes_.push_back({operation, left, right});
    return static_cast<std::int64_t>(nodes_.size()) - 1;
  }

  std::int64_t Or() {
    std::int64_t left = And();
    while (Take("or")) {
      left = Make(Operation::logical_or, left, And());
    }
    return left;
  }

  std::int64_t And() {
    std::int64_t left = Not();
    while (Take("and")) {
      left = Make(Operation::logical_and, left, Not());
    }
    return left;
  }

  std::int64_t Not() { return Take("not") ? Make(Operation::truth_of_not, Not()) : Comparison(); }

  std::int64_t Comparison() {
    constexpr std::array<Symbol, 6> kSymbols = {{{"<", Operation::less},
                                                 {"<=", Operation::less_equal},
                                                 {">", Operation::greater},
                                                 {">=", Operation::greater_equal},
                                                 {"==", Operation::equal},
                                                 {"!=", Operation::not_equal}}};
    const std::int64_t first = Sum();
    std::vector<std::pair<Operation, std::int64_t>> links;
    while (const std::optional<Operation> operation = Among(kSymbols, token_)) {
      Advance();
      links.emplace_back(*operation, Sum());
    }
    std::int64_t next = Expression::kNone;
    for (auto link = links.rbegin(); link != links.rend(); ++link) {
      next = Make(link->first, link->second, next);
    }
    return links.empty() ? first : Make(Operation::comparison, first, next);
  }

  std::int64_t Sum() {
    constexpr std::array<Symbol, 2> kSymbols = {{{"+", Operation::plus}, {"-", Operation::minus}}};
    std::int64_t left = Product();
    while (const std::optional<Operation> operation = Among(kSymbols, token_)) {
      Advance();
      left = Make(*operation, left, Product());
    }
    return left;
  }

  std::int64_t Product() {
    constexpr std::array<Symbol, 3> kSymbols = {
        {{"*", Operation::times}, {"//", Operation::floor_divide}, {"%", Operation::modulo}}};
    std::int64_t left = Signed();
    while (const std::optional<Operation> operation = Among(kSymbols, token_)) {
      Advance();
      left = Make(*operation, left, Signed());
    }
    return left;
  }

  std::int64_t Signed() {
    if (Take("-")) {
      return Make(Operation::negative, Signed());
    }
    return Take("+") ? Signed() : Operand();
  }

  std::int64_t Operand() {
    if (Take("(")) {
      if (++depth_ > kDeepest) {
        Fail(fmt::format("more than {} parentheses within each other", kDeepest));
        return 0;
      }
      const std::int64_t inner = Or();
      --depth_;
      if (!Take(")")) {
        Fail("a parenthesis is not closed");
      }
      return inner;
    }
    const std::string_view token = token_;
    if (token.empty()) {
      Fail("it ends where a value should follow");
      return 0;
    }
    Advance();
    if (IsDigit(token.front())) {
      return Number(token);
    }
    if (token == "True" || token == "False") {
      return Make(Operation::number, token == "True" ? 1 : 0);
    }
    const auto name = std::find(names_.begin(), names_.end(), token);
    if (name == names_.end()) {
      Fail(fmt::format("'{}' is not a value", token));
    }
    return Make(Operation::name, name - names_.begin());
  }

  std::int64_t Number(std::string_view token) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(token.data(), token.data() + token.size(), value);
    if (error != std::errc() || end != token.data() + token.size() || (token.front() == '0' && value != 0)) {
      Fail(fmt::format("'{}' is not a whole number", token));
    } else if (token_ == ".") {
      Fail("it has a fraction");
    }
    return Make(Operation::number, value);
  }

  std::string_view text_;
  const std::vector<std::string>& names_;
  std::string_view rest_ = text_;  ///< behind the token
  std::string_view token_;         ///< the next one
  int depth_ = 0;                  ///< of parentheses
  std::vector<Expression::Node> nodes_;
  std::string fault_;
};

Result<Expression> Expression::Parse(std::string_view text, const std::vector<std::string>& names) {
  if (text.size() > kLongestText) {
    return BadInput(fmt::format("an expression has at most {} characters, this one has {}", kLongestText, text.size()));
  }
  return ExpressionParser(text, names).Run();
}

Result<std::int64_t> Expression::Evaluate(const std::vector<std::int64_t>& values) const {
  TIDEMARK_CHECK(values.size() == names_);
  return Evaluate(root_, values);
}

Result<std::int64_t> Expression::Evaluate(std::int64_t index, const std::vector<std::int64_t>& values) const {
  const Node& node = nodes_[static_cast<std::size_t>(index)];
  if (node.operation == Operation::number) {
    return node.left;
  }
  if (node.operation == Operation::name) {
    return values[static_cast<std::size_t>(node.left)];
  }
  TIDEMARK_ASSIGN(const std::int64_t left, Evaluate(node.left, values));
  switch (node.operation) {
    case Operation::comparison:
      return Compare(left, node.right, values);
    case Operation::truth_of_not:
      return left == 0 ? 1 : 0;
    case Operation::negative:
      return Arithmetic(Operation::minus, 0, left);
    case Operation::logical_and:
      return left == 0 ? left : Evaluate(node.right, values);
    case Operation::logical_or:
      return left != 0 ? left : Evaluate(node.right, values);
    default: {
      TIDEMARK_ASSIGN(const std::int64_t right, Evaluate(node.right, values));
      return Arithmetic(node.operation, left, right);
    }
  }
}

Result<std::int64_t> Expression::Compare(std::int64_t left, std::int64_t link,
                                         const std::vector<std::int64_t>& values) const {
  while (link != kNone) {
    const Node& node = nodes_[static_cast<std::size_t>(link)];
    TIDEMARK_ASSIGN(const std::int64_t right, Evaluate(node.left, values));
    if (!Holds(node.operation, left, right)) {
      return 0;
    }
    left = right;
    link = node.right;
  }
  return 1;
}

bool Expression::Holds(Operation operation, std::int64_t left, std::int64_t right) {
  switch (operation) {
    case Operation::less:
      return left < right;
    case Operation::less_equal:
      return left <= right;
    case Operation::greater:
      return left > right;
    case Operation::greater_equal:
      return left >= right;
    case Operation::equal:
      return left == right;
    default:
      return left != right;
  }
}

Result<std::int64_t> Expression::Arithmetic(Operation operation, std::int64_t left, std::int64_t right) const {
  std::int64_t result = 0;
  bool overflows = false;
  if (operation == Operation::floor_divide || operation == Operation::modulo) {
    if (right == 0) {
      return BadInput(fmt::format("'{}' divides by zero", text_));
    }
    // Python rounds down: a remainder has the sign of what is divided by.
    overflows = left == INT64_MIN && right == -1;
    const std::int64_t remainder = overflows ? 0 : left % right;
    const bool rounds = remainder != 0 && (remainder < 0) != (right < 0);
    if (operation == Operation::modulo) {
      return remainder + (rounds ? right : 0);
    }
    result = overflows ? 0 : left / right - (rounds ? 1 : 0);
  } else if (operation == Operation::plus) {
    overflows = __builtin_add_overflow(left, right, &result);
  } else if (operation == Operation::minus) {
    overflows = __builtin_sub_overflow(left, right, &result);
  } else {
    overflows = __builtin_mul_overflow(left, right, &result);
  }
  if (overflows) {
    return BadInput(fmt::format("'{}' grows beyond 2^63", text_));
  }
  return result;
}

}  // namespace tidemark
