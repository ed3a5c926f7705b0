// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <pugixml.hpp>
#include <string>
#include <vector>

#include "reports/render/check_annotations.h"
#include "reports/render/check_json.h"
#include "reports/render/check_junit.h"
#include "reports/render/render.h"
#include "reports/render/report_json.h"
#include "tests/reports/checked_peaks.h"

namespace tidemark::check_render_test {
namespace {

using testing::HasSubstr;
using testing::Not;

ObservedPeak Sized(std::int64_t n_bytes) { return PeakWith({CheckedTensor("layer.x", Category::activation, n_bytes)}); }

CheckedScenario Grown(const std::string& name) {
  CheckedScenario scenario = JudgeAgainst(Sized(10), Sized(30));
  scenario.name = name;
  return scenario;
}

/// Grown; over its budget and grown; passes; lost.
CheckReport Sample() {
  CheckedScenario over = Grown("over");
  over.budget = Bytes(20);
  over.over_budget = true;
  CheckedScenario passes = JudgeAgainst(Sized(10), Sized(10));
  passes.name = "passes";
  passes.budget = Bytes(20);
  return ReportOf(
      {Grown("grown"), over, passes, Judge({}, BaselineWith("gone", Sized(5)), "gate/baseline.json").front()});
}

std::size_t CountOf(const std::string& text, const std::string& word) {
  std::size_t count = 0;
  for (std::size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) {
    ++count;
  }
  return count;
}

TEST(CheckJson, hasTheKeysThatScriptsRelyOn) {
  const auto json = MakeJson(Sample());
  EXPECT_EQ(json["schema"], "tidemark.check/1");
  const auto& grown = json["scenarios"][0];
  EXPECT_EQ(grown["name"], "grown");
  EXPECT_EQ(grown["verdict"], "grown");
  EXPECT_EQ(grown["baseline_bytes"], 10);
  EXPECT_EQ(grown["peak_bytes"], 30);
  EXPECT_EQ(grown["delta_bytes"], 20);
  EXPECT_EQ(grown["grown"][0]["category"], "activation");
  EXPECT_EQ(grown["grown"][0]["tensor"], "layer.x");
  EXPECT_EQ(grown["grown"][0]["phase"], "forward 0");
  EXPECT_EQ(grown["grown"][0]["bytes"], 20);
  EXPECT_EQ(json["scenarios"][1]["verdict"], "over_budget");
  EXPECT_EQ(json["scenarios"][3]["verdict"], "lost");
  EXPECT_TRUE(json["scenarios"][3]["peak_bytes"].is_null());
  EXPECT_EQ(json["failed"], 3);
}

TEST(CheckBenchmark, isAListOfNamesUnitsAndValues) {
  const auto list = nlohmann::json::parse(CheckBenchmark(Sample()));
  ASSERT_EQ(list.size(), 3U);  // what is lost has no peak
  EXPECT_EQ(list[0]["name"], "grown: peak memory");
  EXPECT_EQ(list[0]["unit"], "bytes");
  EXPECT_EQ(list[0]["value"], 30);
}

TEST(CheckJunit, hasACaseForEachScenarioAndMetric) {
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(CheckJunit(Sample()).c_str()));
  const pugi::xml_node suite = document.child("testsuites").child("testsuite");
  EXPECT_EQ(suite.attribute("tests").as_int(), 6);     // four peaks, two budgets
  EXPECT_EQ(suite.attribute("failures").as_int(), 4);  // grown, over's peak and budget, lost
  EXPECT_EQ(suite.attribute("errors").as_int(), 0);
  EXPECT_STREQ(suite.find_child_by_attribute("classname", "grown").child("failure").attribute("type").value(), "grown");
  EXPECT_FALSE(suite.find_child_by_attribute("classname", "passes").child("failure"));
}

TEST(CheckJunit, isXmlWhateverANameHolds) {
  CheckedScenario scenario = Grown("a<b>&\"'\x01\x1b]]>");
  scenario.against = PeakVerdict::error;
  scenario.message = "line\nwith \x07 & <tags>";
  const std::string xml = CheckJunit(ReportOf({scenario}));
  for (const char c : xml) {
    EXPECT_TRUE(static_cast<unsigned char>(c) >= 0x20 || c == '\n') << static_cast<int>(c);
  }
  EXPECT_THAT(xml, Not(HasSubstr("&#0")));  // as references XML 1.0 refuses them, too
  EXPECT_THAT(xml, Not(HasSubstr("&#27;")));
  pugi::xml_document document;
  ASSERT_TRUE(document.load_string(xml.c_str()));
  const pugi::xml_node test = document.child("testsuites").child("testsuite").child("testcase");
  EXPECT_STREQ(test.attribute("classname").value(), "a<b>&\"'  ]]>");
  EXPECT_TRUE(test.child("error"));
}

TEST(CheckAnnotations, escapeWhatWouldEndThem) {
  CheckedScenario scenario = Grown("a,b:c%");
  scenario.file = "ga,te:/s.yaml";
  scenario.against = PeakVerdict::error;
  scenario.message = "100 % wrong\nreally: yes, so";
  EXPECT_EQ(CheckAnnotations(ReportOf({scenario}), "/repo", "/repo"),
            "::error file=ga%2Cte%3A/s.yaml,line=7,title=a%2Cb%3Ac%25%3A error::100 %25 wrong%0Areally: yes, so\n");
}

TEST(CheckAnnotations, nameFilesFromTheRootOfTheRepository) {
  const CheckReport report = ReportOf({Grown("a")});
  EXPECT_THAT(CheckAnnotations(report, "/repo", "/repo/tools"), HasSubstr("file=tools/gate/scenarios.yaml,line=7"));
  EXPECT_THAT(CheckAnnotations(report, "/elsewhere", "/repo"), HasSubstr("file=gate/scenarios.yaml,"));
}

TEST(CheckAnnotations, areTenOfAKindAtMost) {
  std::vector<CheckedScenario> many;
  for (int i = 0; i < 25; ++i) {
    many.push_back(Grown("g" + std::to_string(i)));
    many.push_back(JudgeAgainst(Sized(10), Sized(5)));
    many.push_back(JudgeAgainst(Sized(10), Sized(10)));  // nothing to tell
  }
  const std::string text = CheckAnnotations(ReportOf(many), "/", "/");
  EXPECT_EQ(CountOf(text, "::error "), 10U);
  EXPECT_EQ(CountOf(text, "::notice "), 10U);
  EXPECT_THAT(text, HasSubstr("::error title=peak memory::16 more scenarios"));
}

TEST(CheckMarkdown, fitsACommentHoweverMuchFails) {
  std::vector<CheckedScenario> many;
  for (int i = 0; i < 500; ++i) {
    many.push_back(Grown(std::string(99, '_')));
    many.back().grown.resize(100, many.back().grown.front());
    for (PeakChange& change : many.back().grown) {
      change.tensor = std::string(300, '|');
    }
    many.back().job_changed.resize(100, {std::string(60, 'k'), {std::string(500, 'a'), std::string(500, 'b')}});
  }
  const std::string text = RenderAs("markdown", ReportOf(many));
  EXPECT_LT(text.size(), 60'000U);
  EXPECT_THAT(text, HasSubstr("Cut here"));
}

TEST(CheckText, saysTheSameInEveryForm) {
  const CheckReport report = Sample();
  for (const char* form : {"terminal", "markdown", "html"}) {
    const std::string text = RenderAs(form, report);
    EXPECT_THAT(text, HasSubstr("FAILED: 3 of 4 scenarios")) << form;
    EXPECT_THAT(text, HasSubstr("layer.x")) << form;
    EXPECT_THAT(text, HasSubstr("tidemark baseline update gate/scenarios.yaml --baseline gate/baseline.json")) << form;
    EXPECT_EQ(RenderAs(form, report), text) << form;
  }
}

TEST(CheckText, passesWithTheNumberOfThoseThatShrank) {
  const CheckReport report = ReportOf({JudgeAgainst(Sized(10), Sized(5)), JudgeAgainst(Sized(10), Sized(10))});
  EXPECT_THAT(RenderAs("terminal", report), HasSubstr("PASSED: no peak has grown, 1 is lower than the baseline"));
}

TEST(CheckText, saysThatThereIsNoBaseline) {
  CheckReport report = ReportOf(Judge({{ScenarioOf("a", Sized(1)), Sized(1)}}, {}, "gate/baseline.json"));
  report.has_baseline = false;
  EXPECT_THAT(RenderAs("terminal", report), HasSubstr("FAILED: there is no baseline gate/baseline.json"));
}

}  // namespace
}  // namespace tidemark::check_render_test
