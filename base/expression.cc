// SPDX-License-Identifier: Apache-2.0
#include "base/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <tao/pegtl/ascii.hpp>
#include <tao/pegtl/memory_input.hpp>
#include <tao/pegtl/must_if.hpp>
#include <tao/pegtl/nothing.hpp>
#include <tao/pegtl/parse.hpp>
#include <tao/pegtl/rules.hpp>
#include <utility>

#include "base/text.h"

namespace tidemark {

// What is parsed and evaluated by recursion stays shallow.
constexpr std::size_t kLongestText = 1000;
constexpr int kDeepest = 100;

/// Receives the parts of an expression in the order in which they are computed, sides before what joins them.
class ExpressionBuilder {
 public:
  using Operation = Expression::Operation;

  ExpressionBuilder(std::string_view text, const std::vector<std::string>& names) : text_(text), names_(names) {}

  /// False where it does not fit into 64 bits, or begins with a zero, which Python refuses too.
  bool PushNumber(std::string_view digits) {
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    Push(Operation::number, value);
    return error == std::errc() && (digits.front() != '0' || value == 0);
  }

  /// False where there is no such name.
  bool PushName(std::string_view word) {
    if (word == "True" || word == "False") {
      Push(Operation::number, word == "True" ? 1 : 0);
      return true;
    }
    const auto name = std::find(names_.begin(), names_.end(), word);
    if (name == names_.end()) {
      return false;
    }
    Push(Operation::name, name - names_.begin());
    return true;
  }

  /// Of the last side.
  void Prefix(Operation operation, const char* where) { Push(operation, Pop(), Expression::kNone, where); }

  /// Of the last two sides.
  void Join(Operation operation, const char* where) {
    const std::int64_t right = Pop();
    Push(operation, Pop(), right, where);
  }

  /// Turns the links that were joined, each to the one before, round: the first side comes to be the root.
  void FinishComparison() {
    std::int64_t index = Pop();
    std::int64_t next = Expression::kNone;
    while (IsLink(At(index).operation)) {
      Expression::Node& link = At(index);
      const std::int64_t before = link.left;
      link.left = link.right;
      link.right = std::exchange(next, index);
      index = before;
    }
    Push(Operation::comparison, index, next);
  }

  /// False where there are too many within each other.
  bool Open() { return ++depth_ <= kDeepest; }
  void Close() { --depth_; }

  Expression Finish() && {
    Expression expression;
    expression.text_ = text_;
    expression.names_ = names_.size();
    expression.root_ = Pop();
    expression.nodes_ = std::move(nodes_);
    return expression;
  }

 private:
  static bool IsLink(Operation operation) { return operation >= Operation::less && operation <= Operation::not_equal; }

  Expression::Node& At(std::int64_t index) { return nodes_[static_cast<std::size_t>(index)]; }

  void Push(Operation operation, std::int64_t left, std::int64_t right = 0, const char* where = nullptr) {
    const std::size_t at = where == nullptr ? 0 : static_cast<std::size_t>(where - text_.data());
    sides_.push_back(std::ssize(nodes_));
    nodes_.push_back({operation, left, right, at});
  }

  std::int64_t Pop() {
    TIDEMARK_CHECK(!sides_.empty());
    const std::int64_t side = sides_.back();
    sides_.pop_back();
    return side;
  }

  std::string_view text_;
  const std::vector<std::string>& names_;
  std::vector<Expression::Node> nodes_;
  std::vector<std::int64_t> sides_;  ///< those that nothing has joined yet
  int depth_ = 0;                    ///< of parentheses
};

namespace {

namespace grammar {

using namespace tao::pegtl;  // NOLINT(google-build-using-namespace): its rules are the words of a grammar
using Operation = ExpressionBuilder::Operation;

// Spaces belong to the token before. Letters beyond ASCII belong to words, so that no message cuts one in two.
struct Spaces : star<blank> {};
struct WordCharacter : sor<identifier_other, range<'\x80', '\xff'>> {};
struct EndOfWord : not_at<WordCharacter> {};
template <class Text>
struct Token : seq<Text, Spaces> {};
template <class Text>
struct Keyword : Token<seq<Text, EndOfWord>> {};

// What the builder hears of: a symbol and the side or sides that it stands before or between.
template <Operation operation, class Symbol, class Side>
struct Prefixed : seq<Symbol, Side> {};
template <Operation operation, class Symbol, class Side>
struct Joined : seq<Symbol, Side> {};

// One rule per level of Python's grammar, the tightest binding first. Those with an entry in Faults end the parse
// where they fail.
struct Disjunction;

struct Digits : seq<plus<digit>, EndOfWord> {};
struct WholeNumber : seq<Digits> {};
struct NoFraction : not_at<one<'.'>> {};
struct Number : seq<at<digit>, WholeNumber, Spaces, NoFraction> {};
struct Name : list<plus<WordCharacter>, one<'.'>> {};
struct Open : one<'('> {};
struct NotAllOpen : not_at<eof> {};
struct Close : one<')'> {};
struct Parenthesised : seq<Token<Open>, Disjunction, NotAllOpen, Token<Close>> {};
struct NotTheEnd : not_at<eof> {};
struct Value : sor<Number, Token<Name>, Parenthesised> {};

struct Signed : sor<Prefixed<Operation::negative, Token<one<'-'>>, Signed>,  //
                    seq<Token<one<'+'>>, Signed>,                            //
                    seq<NotTheEnd, Value>> {};
struct Product : seq<Signed, star<sor<Joined<Operation::times, Token<one<'*'>>, Signed>,
                                      Joined<Operation::floor_divide, Token<two<'/'>>, Signed>,
                                      Joined<Operation::modulo, Token<one<'%'>>, Signed>>>> {};
struct Sum : seq<Product, star<sor<Joined<Operation::plus, Token<one<'+'>>, Product>,
                                   Joined<Operation::minus, Token<one<'-'>>, Product>>>> {};
struct Links : plus<sor<Joined<Operation::less_equal, Token<TAO_PEGTL_STRING("<=")>, Sum>,
                        Joined<Operation::greater_equal, Token<TAO_PEGTL_STRING(">=")>, Sum>,
                        Joined<Operation::equal, Token<TAO_PEGTL_STRING("==")>, Sum>,
                        Joined<Operation::not_equal, Token<TAO_PEGTL_STRING("!=")>, Sum>,
                        Joined<Operation::less, Token<one<'<'>>, Sum>,  //
                        Joined<Operation::greater, Token<one<'>'>>, Sum>>> {};
struct Comparison : seq<Sum, opt<Links>> {};
struct Negation : sor<Prefixed<Operation::truth_of_not, Keyword<TAO_PEGTL_STRING("not")>, Negation>, Comparison> {};
struct Conjunction : seq<Negation, star<Joined<Operation::logical_and, Keyword<TAO_PEGTL_STRING("and")>, Negation>>> {};
struct Disjunction
    : seq<Conjunction, star<Joined<Operation::logical_or, Keyword<TAO_PEGTL_STRING("or")>, Conjunction>>> {};
struct End : eof {};
struct Text : seq<Spaces, Disjunction, End> {};

/// What a message names where the parse ended.
struct Fault : sor<plus<WordCharacter>, TAO_PEGTL_STRING("<="), TAO_PEGTL_STRING(">="), TAO_PEGTL_STRING("=="),
                   TAO_PEGTL_STRING("!="), TAO_PEGTL_STRING("//"), any> {};

/// What is wrong where a rule fails; {} is what stands there.
struct Faults {
  template <class>
  static constexpr const char* message = nullptr;
};
template <>
constexpr const char* Faults::message<WholeNumber> = "'{}' is not a whole number";
template <>
constexpr const char* Faults::message<NoFraction> = "it has a fraction";
template <>
constexpr const char* Faults::message<NotAllOpen> = "a parenthesis is not closed";
template <>
constexpr const char* Faults::message<Close> = "'{}' is not expected";
template <>
constexpr const char* Faults::message<NotTheEnd> = "it ends where a value should follow";
template <>
constexpr const char* Faults::message<Value> = "'{}' is not a value";
template <>
constexpr const char* Faults::message<End> = "'{}' is not expected";
template <class Rule>
using Control = must_if<Faults>::control<Rule>;

template <class Rule>
struct Action : nothing<Rule> {};
template <>
struct Action<Digits> {
  static bool apply(const auto& in, ExpressionBuilder& builder) { return builder.PushNumber(in.string_view()); }
};
template <>
struct Action<Name> {
  static bool apply(const auto& in, ExpressionBuilder& builder) { return builder.PushName(in.string_view()); }
};
template <>
struct Action<Open> {
  static void apply(const auto& in, ExpressionBuilder& builder) {
    if (!builder.Open()) {
      throw parse_error(fmt::format("more than {} parentheses within each other", kDeepest), in);
    }
  }
};
template <>
struct Action<Close> {
  static void apply0(ExpressionBuilder& builder) { builder.Close(); }
};
template <Operation operation, class Symbol, class Side>
struct Action<Prefixed<operation, Symbol, Side>> {
  static void apply(const auto& in, ExpressionBuilder& builder) { builder.Prefix(operation, in.begin()); }
};
template <Operation operation, class Symbol, class Side>
struct Action<Joined<operation, Symbol, Side>> {
  static void apply(const auto& in, ExpressionBuilder& builder) { builder.Join(operation, in.begin()); }
};
template <>
struct Action<Links> {
  static void apply0(ExpressionBuilder& builder) { builder.FinishComparison(); }
};

}  // namespace grammar

/// `message` with what stands at `at` of the text, and which character that is.
Error Refusal(std::string_view text, std::size_t at, std::string_view message, const std::vector<std::string>& names) {
  tao::pegtl::memory_input rest(text.substr(at), "");
  tao::pegtl::parse<grammar::Fault>(rest);
  const std::string_view there = text.substr(at, rest.byte());
  std::string fault = fmt::format(fmt::runtime(message), Excerpt(there, 0));
  if (!there.empty()) {
    fault += fmt::format(" (character {})", CountCharacters(text.substr(0, at)) + 1);
  }
  return BadInput(fmt::format("'{}' is not an expression: {}", Excerpt(text, at), fault),
                  fmt::format("write whole numbers, {}, + - * // %, comparisons, and, or, not, parentheses",
                              fmt::join(names, ", ")));
}

}  // namespace

Result<Expression> Expression::Parse(std::string_view text, const std::vector<std::string>& names) {
  if (text.size() > kLongestText) {
    return BadInput(fmt::format("an expression has at most {} characters, this one has {}", Grouped(kLongestText),
                                Grouped(std::ssize(text))),
                    "shorten it");
  }
  ExpressionBuilder builder(text, names);
  tao::pegtl::memory_input input(text, "");
  try {
    tao::pegtl::parse<grammar::Text, grammar::Action, grammar::Control>(input, builder);
  } catch (const tao::pegtl::parse_error& error) {
    return Refusal(text, error.positions().front().byte, error.message(), names);
  }
  return std::move(builder).Finish();
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
      return Arithmetic(node, 0, left);
    case Operation::logical_and:
      return left == 0 ? left : Evaluate(node.right, values);
    case Operation::logical_or:
      return left != 0 ? left : Evaluate(node.right, values);
    default: {
      TIDEMARK_ASSIGN(const std::int64_t right, Evaluate(node.right, values));
      return Arithmetic(node, left, right);
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

Result<std::int64_t> Expression::Arithmetic(const Node& node, std::int64_t left, std::int64_t right) const {
  const Operation operation = node.operation;
  std::int64_t result = 0;
  bool overflows = false;
  if (operation == Operation::floor_divide || operation == Operation::modulo) {
    if (right == 0) {
      return BadInput(fmt::format("'{}' divides by zero", Excerpt(text_, node.at)),
                      "divide by what is never 0, or test that first: x != 0 and 6 % x == 0");
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
  } else if (operation == Operation::minus || operation == Operation::negative) {
    overflows = __builtin_sub_overflow(left, right, &result);
  } else {
    overflows = __builtin_mul_overflow(left, right, &result);
  }
  if (overflows) {
    return BadInput(fmt::format("'{}' grows beyond 2^63", Excerpt(text_, node.at)), "use smaller numbers");
  }
  return result;
}

}  // namespace tidemark
