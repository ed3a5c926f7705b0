// SPDX-License-Identifier: Apache-2.0
#include "base/result.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace tidemark::result_test {
namespace {

Result<int> Half(int number) {
  if (number % 2 != 0) {
    return BadInput("expected an even number", "double it");
  }
  return number / 2;
}

Result<int> Quarter(int number) {
  TIDEMARK_ASSIGN(const int half, Half(number));
  TIDEMARK_ASSIGN(const int quarter, Half(half));
  return quarter;
}

Status MustBeDivisibleByFour(int number) {
  TIDEMARK_TRY(Quarter(number));
  return Done{};
}

TEST(Result, HoldsAValueOrAnError) {
  EXPECT_TRUE(Half(4).ok());
  EXPECT_EQ(*Half(4), 2);
  EXPECT_FALSE(Half(3));
  EXPECT_EQ(Half(3).error().message, "expected an even number");
  EXPECT_EQ(Half(3).error().code, ErrorCode::bad_input);
}

TEST(Result, MacrosHandAnErrorOnFromWhereverItArose) {
  EXPECT_EQ(*Quarter(12), 3);
  EXPECT_FALSE(Quarter(6).ok());
  EXPECT_FALSE(Quarter(3).ok());
  EXPECT_TRUE(MustBeDivisibleByFour(8).ok());
  EXPECT_FALSE(MustBeDivisibleByFour(6).ok());
}

TEST(Result, TakesExpressionsThatMentionAVariableCalledStatus) {
  const auto check = [](const Status& status) -> Status {
    TIDEMARK_TRY(Status(status));
    return Done{};
  };
  EXPECT_TRUE(check(Done{}).ok());
  EXPECT_FALSE(check(BadInput("no")).ok());
}

TEST(Result, HoldsAndHandsOverWhatCannotBeCopied) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

TEST(Result, PlacesErrorsFromTheInsideOut) {
  const Result<int> result = Half(3).At("micro_batch_size").At("job.yaml:7");
  EXPECT_EQ(result.error().where, "job.yaml:7: micro_batch_size");
  EXPECT_EQ(*Half(4).At("anywhere"), 2);
}

TEST(Error, ReadsAsOneSentenceAndAHint) {
  EXPECT_EQ(Half(3).At("job.yaml:7").error().Text(), "job.yaml:7: expected an even number\nhint: double it");
  EXPECT_EQ(BadInput("no").Text(), "no");
}

TEST(Error, ShowsNoTerminalWhatANameWouldDoToIt) {
  const Error error{ErrorCode::bad_input, "a\x1b[31m.trace", "there is no such file", "try\tb\x7f"};
  EXPECT_EQ(error.Text(), "a?[31m.trace: there is no such file\nhint: try\tb?");
}

TEST(ResultDeathTest, ReadingTheValueOfAnErrorIsAFaultOfOurs) {
  EXPECT_EXIT(*Half(3), testing::ExitedWithCode(70), "internal fault");
  EXPECT_EXIT(Half(4).error(), testing::ExitedWithCode(70), "internal fault");
}

}  // namespace
}  // namespace tidemark::result_test
