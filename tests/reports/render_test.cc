// SPDX-License-Identifier: Apache-2.0
#include "reports/render/render.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "reports/summarise/yaml_json.h"
#include "tests/reports/sample_report.h"

namespace tidemark::render_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) {
    lines.push_back(line);
  }
  return lines;
}

std::size_t LongestLine(const std::string& text) {
  std::size_t longest = 0;
  for (const std::string& line : Lines(text)) {
    const auto columns = std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xc0) != 0x80; });
    longest = std::max(longest, static_cast<std::size_t>(columns));
  }
  return longest;
}

/// What only the closed form knows: no allocator, no trace.
PredictionReport ClosedFormReport() {
  PredictionReport report = SampleReport();
  for (RoleReport& role : report.roles) {
    role.allocator_bytes.reset();
    role.reserved.reset();
    role.minimum.reset();
    role.trace.reset();
    role.phases.clear();
    role.peak.live.clear();
    role.peak.at.reset();
  }
  return report;
}

TEST(TerminalReport, fitsAHundredColumnsOfAsciiButForItsSparkline) {
  std::string text = RenderAs("terminal", SampleReport());
  EXPECT_LE(LongestLine(text), 100U);
  const std::size_t line = text.find("\n  memory ");
  ASSERT_NE(line, std::string::npos);
  EXPECT_THAT(text.substr(line), HasSubstr("\u2588"));  // the peak is a full block
  text.erase(line, text.find('\n', line + 1) - line);
  EXPECT_TRUE(std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
}

TEST(TerminalReport, fitsAHundredColumnsWhateverTheNames) {
  PredictionReport report = SampleReport();
  const std::string name(300, 'x');
  report.title = name + " " + name;
  report.machine = name;
  report.lints[0].message = name + " " + name;
  report.lints[0].id = name;
  for (RoleReport& role : report.roles) {
    role.role = name;
    role.peak.phase = name;
    for (LiveBuffers& live : role.peak.live) {
      live.name = "\xc3\xa9" + name + "\n\x1b[31m";
      live.since_phase = name;
    }
  }
  const std::string text = RenderAs("terminal", report);
  EXPECT_LE(LongestLine(text), 100U);
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(TerminalReport, hasTheThreeLinesThatUsersKnow) {
  const std::string text = RenderAs("terminal", SampleReport());
  EXPECT_THAT(text, HasSubstr("torch max_memory_allocated"));
  EXPECT_THAT(text, HasSubstr("torch max_memory_reserved"));
  EXPECT_THAT(text, HasSubstr("device used (nvidia-smi)"));
}

TEST(TerminalReport, saysByHowMuchAJobFitsOrNot) {
  PredictionReport report = SampleReport();
  const Bytes high = report.Worst().device.high;
  report.device_memory = report.usable_memory = high + Bytes(std::int64_t{3} << 30);
  EXPECT_THAT(RenderAs("terminal", report), HasSubstr("FITS on h100-sxm-80gb (assumed), with 3.00 GiB of "));
  report.device_memory = report.usable_memory = high - Bytes(std::int64_t{3} << 30);
  EXPECT_THAT(RenderAs("terminal", report),
              HasSubstr("DOES NOT FIT on h100-sxm-80gb (assumed): up to 3.00 GiB too much"));
}

// A size alone would recommend the job.
TEST(TerminalReport, saysInTheHeadlineThatGradientsAreWrong) {
  PredictionReport report = SampleReport();
  report.lints.push_back({"wrong-gradient", "error", "the window is short", "rescale it"});
  for (const char* renderer : {"terminal", "html", "markdown"}) {
    const std::string text = RenderAs(renderer, report);
    EXPECT_THAT(text.substr(0, text.find("the window is short")), HasSubstr("FITS on ")) << renderer;
    EXPECT_THAT(text, HasSubstr("but GRADIENTS ARE WRONG: the")) << renderer;
  }
  EXPECT_THAT(RenderAs("terminal", report, {true}), HasSubstr("\x1b[1;31mFITS"));
  EXPECT_THAT(RenderAs("terminal", SampleReport()), Not(HasSubstr("WRONG")));
}

TEST(TerminalReport, coloursOnlyWhenAsked) {
  EXPECT_THAT(RenderAs("terminal", SampleReport()), Not(HasSubstr("\x1b[")));
  EXPECT_THAT(RenderAs("terminal", SampleReport(), {true}), HasSubstr("\x1b[1;32mFITS"));
}

TEST(TerminalReport, namesARequestThatFindsNoRoom) {
  PredictionReport report = SampleReport();
  report.capacity = CapacityReport{Bytes(std::int64_t{20} << 30), "out_of_memory", 1, Bytes(2 << 20), {"backward"}};
  EXPECT_THAT(RenderAs("terminal", report), HasSubstr("OUT OF MEMORY under a limit of 20.0 GiB"));
}

TEST(JsonReport, hasEveryKeyOfItsSchema) {
  PredictionReport report = SampleReport();
  report.capacity = CapacityReport{Bytes(100), "out_of_memory", 1, Bytes(7), {"backward"}};
  report.engines = EnginesReport{{Bytes(5), Nanos(6), Nanos(7)}, {Bytes(5), Nanos(6), Nanos(8)}};
  const Json json = Json::parse(RenderAs("json", report));
  EXPECT_EQ(json["schema"], "tidemark.prediction/1");
  for (const char* pointer : {"/job/layout/dp",
                              "/fits",
                              "/device_memory_bytes",
                              "/usable_memory_bytes",
                              "/peak/role",
                              "/peak/allocated_bytes",
                              "/peak/allocator_bytes",
                              "/peak/reserved_bytes",
                              "/peak/minimum_bytes",
                              "/peak/device_bytes/low",
                              "/peak/device_bytes/expected",
                              "/peak/device_bytes/high",
                              "/peak/at/phase",
                              "/peak/by_category/activation",
                              "/peak/live/0/name",
                              "/peak/live/0/category",
                              "/peak/live/0/bytes",
                              "/peak/live/0/since",
                              "/peak/live/0/until",
                              "/roles/1/ranks",
                              "/roles/1/allocated_bytes",
                              "/capacity/outcome",
                              "/capacity/cache_flushes",
                              "/capacity/request_bytes",
                              "/capacity/phase",
                              "/time/step_ns",
                              "/time/compute_ns",
                              "/time/recompute_ns",
                              "/time/exposed_communication_ns",
                              "/time/bubble_ns",
                              "/time/optimizer_ns",
                              "/time/host_ns",
                              "/last_role",
                              "/throughput/tokens_per_s_per_gpu",
                              "/throughput/model_tflops_per_gpu",
                              "/throughput/mfu",
                              "/throughput/hfu",
                              "/communication/0/kind",
                              "/communication/0/group",
                              "/communication/0/dtype",
                              "/communication/0/count",
                              "/communication/0/payload_bytes",
                              "/communication/0/wire_bytes",
                              "/lints/0/id",
                              "/lints/0/severity",
                              "/lints/0/message",
                              "/lints/0/hint",
                              "/lints/0/cause",
                              "/lints/0/paragraph",
                              "/lints/0/link",
                              "/provenance/version",
                              "/provenance/modelled",
                              "/provenance/observed",
                              "/provenance/calibrated",
                              "/provenance/assumed",
                              "/provenance/not_modelled",
                              "/engines/closed_form/allocated_bytes",
                              "/engines/closed_form/step_ns",
                              "/engines/closed_form/evaluation_ns",
                              "/engines/simulate/evaluation_ns"}) {
    EXPECT_TRUE(json.contains(Json::json_pointer(pointer))) << pointer;
  }
}

TEST(JsonReport, categoriesSumToTheAllocatedBytes) {
  const Json json = Json::parse(RenderAs("json", SampleReport()));
  std::int64_t sum = 0;
  for (const auto& [name, bytes] : json["peak"]["by_category"].items()) {
    sum += bytes.get<std::int64_t>();
  }
  EXPECT_EQ(sum, json["peak"]["allocated_bytes"].get<std::int64_t>());
}

TEST(JsonReport, saysNullForWhatOnlyASimulationKnows) {
  const Json json = Json::parse(RenderAs("json", ClosedFormReport()));
  EXPECT_TRUE(json["peak"]["reserved_bytes"].is_null());
  EXPECT_TRUE(json["peak"]["minimum_bytes"].is_null());
  EXPECT_TRUE(json["peak"]["allocator_bytes"].is_null());
  EXPECT_FALSE(json.contains("engines"));
  EXPECT_FALSE(json.contains("capacity"));
}

TEST(JsonReport, namesTheRoleThatEndsTheStepOrNoneWhereStepsEndOnDifferentOnes) {
  PredictionReport report = SampleReport();
  report.time.role = "stage 1";
  EXPECT_EQ(Json::parse(RenderAs("json", report))["last_role"], "stage 1");
  report.time.role.clear();
  EXPECT_TRUE(Json::parse(RenderAs("json", report))["last_role"].is_null());
}

TEST(JsonReport, survivesNamesThatAreNotUtf8) {
  PredictionReport report = SampleReport();
  report.lints[0].message = "\xff\xfe";
  EXPECT_TRUE(Json::accept(RenderAs("json", report)));
}

TEST(JsonOfYaml, keepsTypesAndOrder) {
  EXPECT_EQ(JsonOfYaml("b: 1\na: [true, null, 2.5, text, \"8\"]\n").dump(),
            R"({"b":1,"a":[true,null,2.5,"text","8"]})");
  EXPECT_TRUE(JsonOfYaml("{").is_null());
}

TEST(MarkdownReport, escapesWhatWouldBreakATable) {
  PredictionReport report = SampleReport();
  report.roles[0].peak.live[0].name = "a|b\n<script>";
  const std::string text = RenderAs("markdown", report);
  EXPECT_THAT(text, HasSubstr("a\\|b &lt;script>"));
  EXPECT_THAT(text, HasSubstr("### Peak memory by category"));
}

TEST(HtmlReport, doesNotLetNamesBreakOut) {
  PredictionReport report = SampleReport();
  const std::string attack = "</script><script>alert(1)</script>";
  report.title = attack;
  report.lints[0].message = attack;
  report.roles[0].trace->tensors[0].name = attack;
  report.roles[0].peak.live[0].name = attack;
  EXPECT_THAT(RenderAs("html", report), Not(HasSubstr("<script>alert")));
}

TEST(HtmlReport, isWrittenForTheClosedFormAsWell) {
  EXPECT_THAT(RenderAs("html", ClosedFormReport()), Not(HasSubstr("class=\"trace\"")));
}

TEST(Renderers, giveTheSameBytesForTheSameReport) {
  for (const auto& renderer : MakeRenderers()) {
    EXPECT_EQ(renderer->Render(SampleReport(), {}), renderer->Render(SampleReport(), {})) << renderer->name();
  }
}

}  // namespace
}  // namespace tidemark::render_test
