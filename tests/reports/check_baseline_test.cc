// SPDX-License-Identifier: Apache-2.0
#include "reports/check/baseline.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

#include "tests/reports/checked_peaks.h"

namespace tidemark::check_baseline_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Baseline Sample() {
  Baseline baseline = BaselineWith("b", MeasuredPeak(7));
  baseline.merge(BaselineWith(
      "a", PeakWith({CheckedTensor("z", Category::activation, 3), CheckedTensor("w", Category::parameter, 5),
                     CheckedTensor("y", Category::activation, 4)})));
  return baseline;
}

std::string Edited(const std::string& what, const std::string& by) {
  std::string text = BaselineText(Sample());
  return text.replace(text.find(what), what.size(), by);
}

std::string ErrorOf(const std::string& text) {
  const auto baseline = ParseBaseline(text, "baseline.json");
  return baseline ? "accepted" : baseline.error().Text();
}

TEST(Baseline, readsWhatItWrote) {
  const std::string text = BaselineText(Sample());
  const auto read = ParseBaseline(text, "baseline.json");
  ASSERT_TRUE(read) << read.error().Text();
  EXPECT_EQ(BaselineText(*read), text);
  EXPECT_EQ(read->at("a").peak.peak.allocated, Bytes(12));
  EXPECT_EQ(read->at("b").peak.hardware.at("name"), "NVIDIA H100");
  EXPECT_EQ(read->at("b").reason, "as it should be");
}

TEST(Baseline, isSortedAndHasALineForEachTensor) {
  std::istringstream lines(BaselineText(Sample()));
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    EXPECT_LE(line.size(), 180U);
    if (const std::size_t at = line.find("\"name\": \""); line.find("\"category\"") != std::string::npos) {
      names.push_back(line.substr(at + 9, 1));
    }
  }
  EXPECT_THAT(names, ElementsAre("y", "z", "w", "w"));  // by category, then by name; b's own behind a's
}

TEST(Baseline, keepsTheReasonOfAnEntryThatIsAsItWas) {
  Baseline baseline = Sample();
  EXPECT_FALSE(Renew(baseline, "b", {MeasuredPeak(7), "another", "9.9.9"}));
  EXPECT_EQ(baseline.at("b").reason, "as it should be");
  EXPECT_TRUE(Renew(baseline, "b", {MeasuredPeak(8), "another", "9.9.9"}));
  EXPECT_EQ(baseline.at("b").reason, "another");
  EXPECT_TRUE(Renew(baseline, "c", {MeasuredPeak(8), "another", "9.9.9"}));
}

TEST(Baseline, doesNotMindInWhichOrderAJobNamesItsKeys) {
  Baseline baseline = BaselineWith("a", PeakWith({}, R"({"x": 1, "y": 2})"));
  EXPECT_FALSE(Renew(baseline, "a", {PeakWith({}, R"({"y": 2, "x": 1})"), "another", "9.9.9"}));
}

TEST(Baseline, findsTheMeasuredScenariosOfAJob) {
  EXPECT_THAT(ScenariosOfJob(Sample(), MeasuredPeak(1)), ElementsAre("b"));
  ObservedPeak other = MeasuredPeak(1);
  other.job = R"({"layout": {"tp": 8}})";
  EXPECT_THAT(ScenariosOfJob(Sample(), other), ElementsAre());
  ObservedPeak longer = MeasuredPeak(1);
  longer.steps = 2;
  EXPECT_THAT(ScenariosOfJob(Sample(), longer), ElementsAre());
}

TEST(Baseline, refusesWhatIsNoBaseline) {
  EXPECT_THAT(ErrorOf("{"), HasSubstr("baseline.json:1: is not valid JSON"));
  EXPECT_THAT(ErrorOf("{\n<<<<<<< HEAD\n"), HasSubstr("baseline.json:2: is not valid JSON"));
  EXPECT_THAT(ErrorOf("[]"), HasSubstr("is no tidemark.baseline/1"));
  EXPECT_THAT(ErrorOf(R"({"schema": "tidemark.run/1"})"), HasSubstr("its schema is 'tidemark.run/1'"));
  EXPECT_THAT(ErrorOf(R"({"schema": "tidemark.baseline/1"})"), HasSubstr("scenarios: expected an object, found none"));
  EXPECT_THAT(ErrorOf(R"({"schema": "tidemark.baseline/1", "scenarios": {"a": 3}})"), HasSubstr("scenario 'a': mode"));
}

TEST(Baseline, refusesNumbersThatWereEdited) {
  EXPECT_THAT(ErrorOf(Edited("\"peak_bytes\": 12", "\"peak_bytes\": 13")), HasSubstr("do not sum to peak_bytes"));
  EXPECT_THAT(ErrorOf(Edited("\"bytes\": 4", "\"bytes\": 4611686018427387904")), HasSubstr("do not sum"));
  EXPECT_THAT(ErrorOf(Edited("\"bytes\": 4", "\"bytes\": -4")), HasSubstr("scenario 'a': live: bytes: expected"));
  EXPECT_THAT(ErrorOf(Edited("\"bytes\": 4", "\"bytes\": 1e30")), HasSubstr("live: bytes"));
  EXPECT_THAT(ErrorOf(Edited("\"activation\"", "\"nonsense\"")), HasSubstr("'nonsense' is no category"));
}

TEST(Baseline, survivesBeingCutAnywhere) {
  const std::string text = BaselineText(Sample());
  for (std::size_t length = 0; length + 2 < text.size(); ++length) {
    EXPECT_FALSE(ParseBaseline(std::string_view(text).substr(0, length), "b.json")) << length;
  }
}

TEST(Baseline, survivesDocumentsThatAreDeeperThanAny) {
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  EXPECT_FALSE(ParseBaseline(R"({"schema": "tidemark.baseline/1", "scenarios": )" + deep + "}", "b.json"));
  EXPECT_TRUE(
      ParseBaseline(Edited("\"tp\": 4", "\"tp\": " + deep), "b.json"));  // of the job, which is text to the gate
}

TEST(RunDocument, isThePeakOfItsLargestRank) {
  const auto run = ReadRun(
      R"({"schema": "tidemark.run/1", "hardware": {"device": "cpu"}, "job": {"layout": {"tp": 4}}, "steps": [{}, {}],
    "peak": {"allocated_bytes": 9, "reserved_bytes": 20, "at": {"phase": "backward", "microbatch": 1, "step": 1},
             "live": [{"name": "w", "category": "parameter", "bytes": 9, "since_phase": "a", "until_phase": "b"}]},
    "budget": {"device_used_bytes": 30}, "validity": {"reasons": ["memory was swapped"]}, "out_of_memory": null})",
      "run.json");
  ASSERT_TRUE(run) << run.error().Text();
  EXPECT_TRUE(run->measured);
  EXPECT_EQ(run->peak.allocated, Bytes(9));
  EXPECT_EQ(run->device, Bytes(30));
  EXPECT_EQ(run->steps, 2);
  EXPECT_EQ(run->at, "backward of microbatch 1 of step 2");
  EXPECT_THAT(run->doubts, ElementsAre("memory was swapped"));
}

TEST(RunDocument, thatRanOutOfMemoryHasNoPeak) {
  const auto run = ReadRun(R"({"schema": "tidemark.run/1", "out_of_memory": {"phase": "forward"}})", "run.json");
  ASSERT_FALSE(run);
  EXPECT_THAT(run.error().Text(), HasSubstr("ran out of memory"));
}

}  // namespace
}  // namespace tidemark::check_baseline_test
