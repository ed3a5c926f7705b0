// SPDX-License-Identifier: Apache-2.0
#include "base/expression.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace tidemark::expression_test {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Values are Python's own (3.11), i = 7 and steps = 4.
std::int64_t ValueOf(const std::string& text) {
  const Result<Expression> expression = Expression::Parse(text, {"i", "steps"});
  EXPECT_TRUE(expression.ok()) << expression.error().Text();
  const Result<std::int64_t> value = expression->Evaluate({7, 4});
  EXPECT_TRUE(value.ok()) << value.error().Text();
  return *value;
}

TEST(Expression, ComputesAsPythonDoes) {
  EXPECT_EQ(ValueOf("(i + 1) % steps == 0"), 1);
  EXPECT_EQ(ValueOf("i % (steps - 1)"), 1);
  EXPECT_EQ(ValueOf("-i // 2"), -4);
  EXPECT_EQ(ValueOf("-i % steps"), 1);
  EXPECT_EQ(ValueOf("i % -steps"), -1);
  EXPECT_EQ(ValueOf("2 + 3 * 4 - 1"), 13);
  EXPECT_EQ(ValueOf("20 - 5 - 3"), 12);
  EXPECT_EQ(ValueOf("not i == 7"), 0);
  EXPECT_EQ(ValueOf("not i == 8 and steps == 4"), 1);
  EXPECT_EQ(ValueOf("i >= 7 or i // 0"), 1);
  EXPECT_EQ(ValueOf("i < 7 and i // 0 == 1"), 0);
  EXPECT_EQ(ValueOf("i != 7 or steps <= 4 and i > 6"), 1);
  EXPECT_EQ(ValueOf("not (i > 7)"), 1);
}

TEST(Expression, ComparesInChains) {
  EXPECT_EQ(ValueOf("0 < i < 3"), 0);  // (0 < i) < 3 would hold
  EXPECT_EQ(ValueOf("0 < i < 8"), 1);
  EXPECT_EQ(ValueOf("3 > steps > 1"), 0);
  EXPECT_EQ(ValueOf("1 <= steps == 4 != i"), 1);
  EXPECT_EQ(ValueOf("(0 < i) < 3"), 1);
  EXPECT_EQ(ValueOf("i < 0 < 1 // 0"), 0);  // the rest is not looked at
  EXPECT_EQ(ValueOf("not 0 < i < 3 and 7 <= i <= 7"), 1);
}

TEST(Expression, ASideThatStandsInTwoComparisonsIsComputedOnce) {
  std::string text = "i";
  for (int depth = 0; depth < 100; ++depth) {
    text = "0<(" + text + ")<9";  // computed twice on each level, this would take 2^100 steps
  }
  EXPECT_EQ(ValueOf(text), 1);
}

TEST(Expression, StacksSignsAndNegations) {
  EXPECT_EQ(ValueOf("--i"), 7);
  EXPECT_EQ(ValueOf("- + -i"), 7);
  EXPECT_EQ(ValueOf("i - -1"), 8);
  EXPECT_EQ(ValueOf("7 % --steps"), 3);
  EXPECT_EQ(ValueOf("not not i"), 1);
  EXPECT_EQ(ValueOf("not not not i"), 0);
  EXPECT_EQ(ValueOf("not -i"), 0);
  EXPECT_EQ(ValueOf("not(i)"), 0);
}

TEST(Expression, KnowsTruthValues) {
  EXPECT_EQ(ValueOf("True"), 1);
  EXPECT_EQ(ValueOf("i == 7 == True"), 0);  // 7 == True does not hold
  EXPECT_EQ(ValueOf("False or steps"), 4);
  EXPECT_EQ(ValueOf("True + True"), 2);
}

TEST(Expression, RefusesFractions) {
  for (const char* text : {"0.5", ".5", "1.", "i*1.5 == 4.5", "1e3", "2.0"}) {
    EXPECT_FALSE(Expression::Parse(text, {"i", "steps"}).ok()) << text;
  }
  EXPECT_NE(Expression::Parse("0.5", {"i"}).error().message.find("it has a fraction"), std::string::npos);
}

TEST(Expression, ReadsWholeWords) {
  for (const char* text : {"notsteps", "not1", "iand 1", "i orsteps", "i2", "2i", "steps_", "true", "i \xc3\xa9"}) {
    EXPECT_FALSE(Expression::Parse(text, {"i", "steps"}).ok()) << text;
  }
  EXPECT_FALSE(Expression::Parse("012", {"i"}).ok());  // neither does Python
  EXPECT_EQ(ValueOf("00"), 0);
}

TEST(Expression, RefusesWhatDoesNotFit) {
  EXPECT_EQ(ValueOf("9223372036854775807"), INT64_MAX);
  EXPECT_EQ(ValueOf("9007199254740993 - 9007199254740992"), 1);  // exact beyond 2^53
  EXPECT_FALSE(Expression::Parse("9223372036854775808", {"i"}).ok());
  for (const char* text : {"9223372036854775807 + 1", "-9223372036854775807 - 2", "4611686018427387904 * 2",
                           "(-9223372036854775807 - 1) // -1", "-(-9223372036854775807 - 1)"}) {
    const Result<std::int64_t> value = Expression::Parse(text, {})->Evaluate({});
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_NE(value.error().Text().find("grows beyond 2^63"), std::string::npos);
  }
  EXPECT_EQ(*Expression::Parse("(-9223372036854775807 - 1) % -1", {})->Evaluate({}), 0);
  EXPECT_FALSE(Expression::Parse(std::string(1001, '1'), {}).ok());
  EXPECT_FALSE(Expression::Parse(std::string(101, '(') + "1" + std::string(101, ')'), {}).ok());
  EXPECT_EQ(ValueOf(std::string(100, '(') + "1" + std::string(100, ')')), 1);
  EXPECT_EQ(ValueOf(std::string(998, '-') + "i"), 7);
}

TEST(Expression, RefusesADivisionByZeroThatMatters) {
  for (const char* text : {"i % 0", "i // (steps - 4) == 1", "1 and i % 0", "not i % 0"}) {
    const Result<Expression> expression = Expression::Parse(text, {"i", "steps"});
    ASSERT_TRUE(expression.ok()) << text;
    const Result<std::int64_t> value = expression->Evaluate({7, 4});
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_NE(value.error().Text().find("divides by zero"), std::string::npos);
  }
}

TEST(Expression, RefusesWhatIsNoExpression) {
  for (const char* text : {"", "i +", "j == 1", "sin(i)", "i = 3", "i ** 2", "i, steps", "(i", "i / 2", "i && steps",
                           "1 not", "i < not 1", "i)", "()", "1 2", "i <> 1", "- not i", "a.b"}) {
    EXPECT_FALSE(Expression::Parse(text, {"i", "steps"}).ok()) << text;
  }
}

TEST(Expression, SaysWhatIsNotExpectedAndWhere) {
  struct Case {
    const char* text;
    const char* fault;
  };
  for (const Case& wrong : {Case{"", "it ends where a value should follow"},
                            {"i +", "it ends where a value should follow"},
                            {"(i", "a parenthesis is not closed"},
                            {"i)", "')' is not expected (character 2)"},
                            {"(i steps)", "'steps' is not expected (character 4)"},
                            {"i / 2", "'/' is not expected (character 3)"},
                            {"i = 3", "'=' is not expected (character 3)"},
                            {"== i", "'==' is not a value (character 1)"},
                            {"i ** 2", "'*' is not a value (character 4)"},
                            {"i < not 1", "'not' is not a value (character 5)"},
                            {"1 and sin(i)", "'sin' is not a value (character 7)"},
                            {"1 + 012", "'012' is not a whole number (character 5)"},
                            {"2i", "'2i' is not a whole number (character 1)"},
                            {"9223372036854775808 ", "'9223372036854775808' is not a whole number (character 1)"},
                            {"i * 1.5", "it has a fraction (character 6)"},
                            {"i + \xc3\xa9t\xc3\xa9 + a", "'\xc3\xa9t\xc3\xa9' is not a value (character 5)"},
                            {"i \xe2\x89\xa4 3", "'\xe2\x89\xa4' is not expected (character 3)"}}) {
    const Result<Expression> expression = Expression::Parse(wrong.text, {"i", "steps"});
    ASSERT_FALSE(expression.ok()) << wrong.text;
    EXPECT_EQ(expression.error().message, std::string("'") + wrong.text + "' is not an expression: " + wrong.fault);
    EXPECT_THAT(expression.error().hint, HasSubstr("i, steps, + - * // %"));
  }
}

TEST(Expression, ShowsOfALongTextOnlyWhatStandsAroundTheFault) {
  std::string sum = "i";
  for (int term = 1; term < 20'000; ++term) {
    sum += " + i";
  }
  EXPECT_EQ(Expression::Parse(sum, {"i"}).error().message,
            "an expression has at most 1,000 characters, this one has 79,997");

  const std::string start = sum.substr(0, 401);  // i + ... + i
  const std::string wrong = start + " + * i" + sum.substr(1, 400);
  EXPECT_EQ(Expression::Parse(wrong, {"i"}).error().message,
            "'...+ i + i + i + i + i + i + i + * i + i + i + i + i + i + i + ...' is not an expression: "
            "'*' is not a value (character 405)");

  const std::string word = Expression::Parse(std::string(1000, 'a'), {"i"}).error().message;
  EXPECT_THAT(word,
              AllOf(StartsWith("'" + std::string(60, 'a') + "...' is not"), EndsWith("is not a value (character 1)")));
  EXPECT_LT(word.size(), 200U);

  const std::string zero = Expression::Parse(start + " % 0" + sum.substr(1, 400), {"i"})->Evaluate({1}).error().message;
  EXPECT_EQ(zero, "'...i + i + i + i + i + i + i + i % 0 + i + i + i + i + i + i + ...' divides by zero");
}

}  // namespace
}  // namespace tidemark::expression_test
