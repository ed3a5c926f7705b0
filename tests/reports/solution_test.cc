// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/solution.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "reports/render/render.h"

namespace tidemark::solution_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

AdvisedCost Cost(std::int64_t gib, std::int64_t step_ms) {
  return {Bytes(gib * kGiB),
          {Bytes(gib * kGiB), Bytes((gib + 1) * kGiB), Bytes((gib + 2) * kGiB)},
          Bytes(50 * kGiB),
          Nanos(step_ms * 1'000'000),
          true};
}

SolvedOption Option(const std::string& change, std::vector<std::string> differs_in, std::int64_t gib,
                    std::int64_t step_ms) {
  SolvedOption option;
  option.change = change;
  option.differs_in = std::move(differs_in);
  option.cost = Cost(gib, step_ms);
  option.saved = Bytes((60 - gib) * kGiB);
  option.lost = Nanos((step_ms - 100) * 1'000'000);
  option.tokens_per_s_per_gpu = 1234.5;
  option.command = "tidemark predict job.yaml --set " + change;
  return option;
}

/// A job of 60 GiB and 100 ms, and two ways to do it in 50 GiB.
Solution Found() {
  Solution solution;
  solution.title = "job.yaml on 8 ranks";
  solution.job_yaml = "layout: {tp: 2}\n";
  solution.version = "0.1.0";
  solution.machine = "h100-sxm-80gb";
  solution.memory = Bytes(50 * kGiB);
  solution.global_batch = 64;
  solution.ranks = 8;
  solution.varied = {"layout", "micro_batch_size"};
  solution.now = Cost(60, 100);
  solution.options = {Option("layout.tp=4", {}, 40, 110),
                      Option("micro_batch_size=2", {"layout", "micro_batch_size"}, 45, 120)};
  solution.options.back().lints = {"recompute-without-gain"};
  solution.size = 20;
  solution.fit = 9;
  solution.too_large = 10;
  solution.refused = 1;
  return solution;
}

TEST(Solution, JsonHasEachOptionWithItsCommand) {
  const Json json = Json::parse(RenderAs("json", Found()));
  EXPECT_EQ(json["schema"], "tidemark.advice/1");
  ASSERT_EQ(json["options"].size(), 2U);
  EXPECT_EQ(json["options"][0]["kind"], "fastest");
  EXPECT_EQ(json["options"][1]["kind"], "other");
  EXPECT_THAT(json["options"][1]["differs_in"], ElementsAre("layout", "micro_batch_size"));
  EXPECT_EQ(json["options"][1]["saved_bytes"], 15 * kGiB);
  EXPECT_EQ(json["options"][1]["lost_ns"], 20'000'000);
  EXPECT_EQ(json["options"][0]["device_high_bytes"], 42 * kGiB);
  EXPECT_TRUE(json["options"][0]["mfu"].is_null());
  EXPECT_EQ(json["options"][0]["command"], "tidemark predict job.yaml --set layout.tp=4");
  EXPECT_EQ(json["size"], 20);
  EXPECT_TRUE(json["refusal"].is_null());
  EXPECT_TRUE(json["nearest"].is_null());
}

TEST(Solution, TextNamesTheFastestFirst) {
  const std::string text = RenderAs("terminal", Found());
  EXPECT_THAT(text, HasSubstr("FITS in 50.0 GiB: layout.tp=4, 110 ms a step"));
  EXPECT_THAT(text, HasSubstr("1,235 tokens/s per GPU"));
  EXPECT_THAT(text, HasSubstr("9 fit, 0 may, 10 do not, 1 refused"));
  EXPECT_THAT(text, HasSubstr("new warnings: recompute-without-gain"));
  EXPECT_LT(text.find("--set layout.tp=4"), text.find("--set micro_batch_size=2"));
  EXPECT_THAT(text, Not(HasSubstr("other numbers")));
}

TEST(Solution, AJobThatIsRefusedIsNamedAndNothingIsComparedWithIt) {
  Solution solution = Found();
  solution.now.reset();
  solution.refusal = "32 heads do not divide over 3 ranks";
  for (SolvedOption& option : solution.options) {
    option.saved.reset();
    option.lost.reset();
  }
  const Json json = Json::parse(RenderAs("json", solution));
  EXPECT_TRUE(json["now"].is_null());
  EXPECT_EQ(json["refusal"], "32 heads do not divide over 3 ranks");
  EXPECT_TRUE(json["options"][0]["saved_bytes"].is_null());
  EXPECT_THAT(RenderAs("markdown", solution), HasSubstr("32 heads do not divide over 3 ranks"));
}

TEST(Solution, WhereNothingFitsTheNearestIsSaid) {
  Solution solution = Found();
  solution.options.clear();
  solution.nearest = Option("layout.pp=8", {}, 49, 100);  // and 2 GiB beside tensors
  EXPECT_THAT(RenderAs("terminal", solution), HasSubstr("NOTHING FITS in 50.0 GiB; layout.pp=8 needs least, 51.0 GiB"));
  EXPECT_EQ(Json::parse(RenderAs("json", solution))["nearest"]["device_high_bytes"], 51 * kGiB);
  solution.size = 40;
  solution.refused = 30;
  EXPECT_THAT(RenderAs("terminal", solution), HasSubstr("51.0 GiB; 30 of 40 ways are refused"));
}

TEST(Solution, WhatIsLeftOutIsCounted) {
  Solution solution = Found();
  solution.altering = 3;
  solution.tight = 2;
  solution.complete = false;
  const std::string text = RenderAs("terminal", solution);
  EXPECT_THAT(text, HasSubstr("INTERRUPTED, so far: FITS"));
  EXPECT_THAT(text, HasSubstr("left out: 3 ways that fit"));
  EXPECT_THAT(text, HasSubstr("left out: 2 ways that fit but for"));
}

TEST(Solution, WhatFitsIsNotDeniedWhereTheFastestWasNotFoundYet) {
  Solution solution = Found();
  solution.options.clear();
  solution.complete = false;
  solution.fit = 149;
  solution.near = 35;
  const std::string text = RenderAs("terminal", solution);
  EXPECT_THAT(text, HasSubstr("INTERRUPTED before the fastest was found; fit in 50.0 GiB, or may: 184 ways"));
  EXPECT_THAT(text, Not(HasSubstr("NOTHING FITS")));
  solution.fit = solution.near = 0;
  EXPECT_THAT(RenderAs("terminal", solution), HasSubstr("INTERRUPTED, so far: NOTHING FITS"));
}

TEST(Solution, WhatIsAllRefusedDoesNotSayThatNothingFits) {
  Solution solution = Found();
  solution.options.clear();
  solution.size = solution.refused = 20;
  solution.fit = solution.too_large = 0;
  solution.refusals = {{"layout.tp: 3 heads", 12}, {"another", 1}};
  const std::string text = RenderAs("terminal", solution);
  EXPECT_THAT(text, HasSubstr("NOTHING TO CHOOSE FROM: 20 ways tried, and refused; most often: layout.tp: 3 heads"));
  EXPECT_THAT(text, HasSubstr("12 ways: layout.tp: 3 heads"));
  EXPECT_THAT(text, HasSubstr("1 way: another"));
  EXPECT_THAT(text, Not(HasSubstr("NOTHING FITS")));
  EXPECT_EQ(Json::parse(RenderAs("json", solution))["refusals"][1]["count"], 1);
}

}  // namespace
}  // namespace tidemark::solution_test
