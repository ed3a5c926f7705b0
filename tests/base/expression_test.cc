// SPDX-License-Identifier: Apache-2.0
#include "base/expression.h"

#include <gtest/gtest.h>

namespace tidemark {
namespace {

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
  for (const char* text : {"", "i +", "j == 1", "sin(i)", "i = 3", "i ** 2", "i, steps", "(i", "i / 2", "i && steps"}) {
    EXPECT_FALSE(Expression::Parse(text, {"i", "steps"}).ok()) << text;
  }
}

}  // namespace
}  // namespace tidemark
