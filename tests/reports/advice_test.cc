// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "reports/render/render.h"

namespace tidemark::advice_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

/// A job of 60 GiB and 100 ms on a device of 50 GiB.
Advice Plain() {
  Advice advice;
  advice.title = "a made-up job";
  advice.job_yaml = "layout: {tp: 2}\n";
  advice.version = "0.1.0";
  advice.machine = "h100-sxm-80gb";
  advice.memory = Bytes(50 * kGiB);
  advice.now = {Bytes(60 * kGiB), {}, advice.memory, Nanos(100'000'000), false};
  return advice;
}

AdvisedOption Option(const std::string& change, std::int64_t gib, std::int64_t step_ms) {
  AdvisedOption option;
  option.change = change;
  option.cost = {Bytes(gib * kGiB), {}, Bytes(50 * kGiB), Nanos(step_ms * 1'000'000), gib <= 50};
  option.command = "tidemark predict job.yaml --set " + change;
  return option;
}

std::vector<std::string> Changes(const std::vector<AdvisedOption>& options) {
  std::vector<std::string> changes;
  for (const AdvisedOption& option : options) {
    changes.push_back(option.change);
  }
  return changes;
}

Advice Filled() {
  Advice advice = Plain();
  advice.tried = 11;
  advice.refused = 1;
  advice.wrong = 1;
  for (const AdvisedOption& option :
       {Option("saves=1.per.ms", 40, 120), Option("saves=free", 59, 100), Option("saves=2.per.ms", 50, 105),
        Option("saves=faster.too", 55, 90), Option("faster=1.ms.per.GiB", 70, 90), Option("faster=free", 60, 99),
        Option("faster=5.ms.per.GiB", 61, 95), Option("nothing=happens", 60, 100), Option("worse=larger", 61, 100),
        Option("worse=slower", 60, 101)}) {
    Sort(option, advice);
  }
  Finish(advice, 12);
  return advice;
}

TEST(Advice, isInOrderOfBytesSavedForTheTimeLostBehindWhatIsFree) {
  EXPECT_THAT(Changes(Filled().saving),
              ElementsAre("saves=faster.too", "saves=free", "saves=2.per.ms", "saves=1.per.ms"));
}

TEST(Advice, keepsWhatIsFasterForMoreMemoryApart) {
  EXPECT_THAT(Changes(Filled().faster), ElementsAre("faster=free", "faster=5.ms.per.GiB", "faster=1.ms.per.GiB"));
}

TEST(Advice, countsWhatIsOfNoUse) {
  const Advice advice = Filled();
  EXPECT_EQ(advice.no_effect, 1);
  EXPECT_EQ(advice.worse, 2);
}

TEST(Advice, saysWhatIsSavedAndLost) {
  const Advice advice = Filled();
  EXPECT_EQ(advice.saving[2].saved, Bytes(10 * kGiB));
  EXPECT_EQ(advice.saving[2].lost, Nanos(5'000'000));
  EXPECT_EQ(advice.saving[2].SavedPerMillisecond(), 2.0 * kGiB);
  EXPECT_EQ(advice.saving[1].SavedPerMillisecond(), std::nullopt);
  EXPECT_EQ(advice.faster[2].saved, Bytes(-10 * kGiB));
}

TEST(Advice, keepsTheFirstOfEachAndCountsTheRest) {
  Advice advice = Filled();
  Finish(advice, 1);
  EXPECT_THAT(Changes(advice.saving), ElementsAre("saves=faster.too"));
  EXPECT_THAT(Changes(advice.faster), ElementsAre("faster=free"));
  EXPECT_EQ(advice.left_out, 3 + 2);
}

TEST(Advice, keepsAsManyThatAlterNumbersInTheSameOrder) {
  Advice advice = Plain();
  for (const char* change : {"same=1", "same=2", "other=1", "other=2"}) {
    AdvisedOption option = Option(change, 50, 100);
    option.alters = option.change.starts_with("other");
    Sort(option, advice);
  }
  Finish(advice, 1);
  EXPECT_THAT(Changes(advice.saving), ElementsAre("same=1", "other=1"));
  EXPECT_EQ(advice.left_out, 2);
  EXPECT_EQ(advice.saves, 4);
  EXPECT_EQ(advice.saves_and_fits, 4);
  const std::string text = RenderAs("terminal", advice);
  EXPECT_THAT(text.substr(text.find("with other numbers")), Not(HasSubstr("same=1")));
}

TEST(Advice, ofEqualChangesTheShorterComesFirst) {
  Advice advice = Plain();
  Sort(Option("a.long=way", 50, 110), advice);
  Sort(Option("z=1", 50, 110), advice);
  Finish(advice, 12);
  EXPECT_THAT(Changes(advice.saving), ElementsAre("z=1", "a.long=way"));
}

TEST(Advice, jsonHasEveryKeyOfItsSchema) {
  Advice advice = Filled();
  advice.saving[0].alters = true;
  advice.saving[0].lints = {"low-precision-sum"};
  const Json json = Json::parse(RenderAs("json", advice));
  EXPECT_EQ(json["schema"], "tidemark.advice/1");
  ASSERT_EQ(json["options"].size(), 7U);
  const Json& first = json["options"][0];
  EXPECT_EQ(first["change"], "saves=faster.too");
  EXPECT_EQ(first["kind"], "saves_memory");
  EXPECT_EQ(first["allocated_bytes"], 55 * kGiB);
  EXPECT_EQ(first["step_ns"], 90'000'000);
  EXPECT_EQ(first["saved_bytes"], 5 * kGiB);
  EXPECT_EQ(first["lost_ns"], -10'000'000);
  EXPECT_EQ(first["saved_bytes_per_ms"], nullptr);
  EXPECT_EQ(first["fits"], false);
  EXPECT_EQ(first["alters"], "numbers");
  EXPECT_EQ(first["lints"][0], "low-precision-sum");
  EXPECT_EQ(first["command"], "tidemark predict job.yaml --set saves=faster.too");
  EXPECT_EQ(json["options"][2]["saved_bytes_per_ms"], 2.0 * kGiB);
  EXPECT_EQ(json["options"][4]["kind"], "faster");
  EXPECT_EQ(json["options"][4]["alters"], nullptr);
  for (const char* pointer :
       {"/title", "/job/layout/tp", "/machine", "/device_memory_bytes", "/now/allocated_bytes", "/now/step_ns",
        "/now/device_high_bytes", "/now/usable_memory_bytes", "/now/fits", "/tried", "/refused", "/wrong", "/no_effect",
        "/worse", "/left_out", "/saves", "/saves_and_fits", "/provenance/version"}) {
    EXPECT_TRUE(json.contains(Json::json_pointer(pointer))) << pointer;
  }
}

TEST(Advice, textHasEveryCommandOnALineOfItsOwn) {
  Advice advice = Filled();
  const std::string command = "tidemark predict job.yaml --set " + std::string(120, 'k') + "=1";
  advice.saving[0].command = command;
  EXPECT_THAT(RenderAs("terminal", advice), HasSubstr("\n    " + command + "\n"));
  EXPECT_THAT(RenderAs("markdown", advice), HasSubstr("`" + command + "`"));
  EXPECT_THAT(RenderAs("html", advice), HasSubstr("<code>" + command + "</code>"));
}

TEST(Advice, textSaysWhichChangeMakesItFit) {
  EXPECT_THAT(RenderAs("terminal", Filled()), HasSubstr("2 of 4 single changes that save memory make it fit"));
  Advice advice = Filled();
  advice.now.fits = true;
  EXPECT_THAT(RenderAs("terminal", advice), Not(HasSubstr("make it fit")));
}

TEST(Advice, textSaysThatNothingHelps) {
  Advice advice = Plain();
  Finish(advice, 12);
  EXPECT_THAT(RenderAs("terminal", advice), HasSubstr("no single change saves memory"));
}

}  // namespace
}  // namespace tidemark::advice_test
