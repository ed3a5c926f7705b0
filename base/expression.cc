// SPDX-License-Identifier: Apache-2.0
#include "base/expression.h"

#include <fmt/format.h>
#include <muParser.h>

#include <cmath>
#include <utility>

namespace tidemark {
namespace {

// The parser computes in double, which holds whole numbers up to 2^53 exactly. What divides by zero is NaN and stays
// NaN, so that `and` and `or` can pass it by.
constexpr double kLargest = 9007199254740992.0;

double FloorDivide(double a, double b) { return b == 0 ? std::nan("") : std::floor(a / b); }
double Modulo(double a, double b) { return b == 0 ? std::nan("") : a - b * std::floor(a / b); }
double Plus(double a, double b) { return a + b; }
double Minus(double a, double b) { return a - b; }
double Times(double a, double b) { return a * b; }
double Negative(double a) { return -a; }

double Truth(bool holds, double a, double b) { return std::isnan(a) || std::isnan(b) ? std::nan("") : holds ? 1 : 0; }
double Less(double a, double b) { return Truth(a < b, a, b); }
double LessEqual(double a, double b) { return Truth(a <= b, a, b); }
double Greater(double a, double b) { return Truth(a > b, a, b); }
double GreaterEqual(double a, double b) { return Truth(a >= b, a, b); }
double Equal(double a, double b) { return Truth(a == b, a, b); }
double NotEqual(double a, double b) { return Truth(a != b, a, b); }
double And(double a, double b) { return std::isnan(a) || a == 0 ? a : b; }
double Or(double a, double b) { return std::isnan(a) || a != 0 ? a : b; }
double Not(double a) { return std::isnan(a) ? a : a == 0 ? 1 : 0; }

/// Python's operators in Python's order of precedence, in place of the parser's own.
void DefineOperators(mu::Parser& parser) {
  parser.EnableBuiltInOprt(false);
  parser.ClearConst();
  parser.ClearFun();
  parser.DefineInfixOprtChars("-not");
  parser.DefineOprt("or", Or, 1);
  parser.DefineOprt("and", And, 2);
  parser.DefineInfixOprt("not", Not, 3);
  parser.DefineOprt("<", Less, mu::prCMP);
  parser.DefineOprt("<=", LessEqual, mu::prCMP);
  parser.DefineOprt(">", Greater, mu::prCMP);
  parser.DefineOprt(">=", GreaterEqual, mu::prCMP);
  parser.DefineOprt("==", Equal, mu::prCMP);
  parser.DefineOprt("!=", NotEqual, mu::prCMP);
  parser.DefineOprt("+", Plus, mu::prADD_SUB);
  parser.DefineOprt("-", Minus, mu::prADD_SUB);
  parser.DefineOprt("*", Times, mu::prMUL_DIV);
  parser.DefineOprt("//", FloorDivide, mu::prMUL_DIV);
  parser.DefineOprt("%", Modulo, mu::prMUL_DIV);
  parser.DefineInfixOprt("-", Negative, mu::prPOW);
}

}  // namespace

struct Expression::Parsed {
  std::string text;
  mu::Parser parser;
  std::vector<double> values;
};

Expression::Expression(std::unique_ptr<Parsed> parsed) : parsed_(std::move(parsed)) {}
Expression::Expression(Expression&&) noexcept = default;
Expression& Expression::operator=(Expression&&) noexcept = default;
Expression::~Expression() = default;

Result<Expression> Expression::Parse(std::string_view text, const std::vector<std::string>& names) {
  auto parsed = std::make_unique<Parsed>();
  parsed->text = text;
  parsed->values.resize(names.size());
  const std::string hint = fmt::format("write whole numbers, {}, + - * // %, comparisons, and, or, not, parentheses",
                                       fmt::join(names, ", "));
  try {
    DefineOperators(parsed->parser);
    for (std::size_t i = 0; i < names.size(); ++i) {
      parsed->parser.DefineVar(names[i], &parsed->values[i]);
    }
    parsed->parser.SetExpr(std::string(text));
    parsed->parser.Eval();
    if (parsed->parser.GetNumResults() != 1) {
      return BadInput(fmt::format("'{}' is more than one expression", text), hint);
    }
  } catch (const mu::ParserError& error) {
    return BadInput(fmt::format("'{}' is not an expression: {}", text, error.GetMsg()), hint);
  }
  return Expression(std::move(parsed));
}

Result<std::int64_t> Expression::Evaluate(const std::vector<std::int64_t>& values) const {
  TIDEMARK_CHECK(values.size() == parsed_->values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    parsed_->values[i] = static_cast<double>(values[i]);
  }
  const double result = parsed_->parser.Eval();
  if (std::isnan(result)) {
    return BadInput(fmt::format("'{}' divides by zero", parsed_->text));
  }
  if (std::fabs(result) > kLargest) {
    return BadInput(fmt::format("'{}' grows beyond 2^53", parsed_->text));
  }
  return static_cast<std::int64_t>(result);
}

}  // namespace tidemark
