// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/trace_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "base/text.h"
#include "reports/render/render.h"
#include "tests/reports/sample_report.h"

namespace tidemark::trace_report_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

LiveBuffers Live(const std::string& name, Category category, std::int64_t n_bytes) {
  LiveBuffers live;
  live.name = name;
  live.category = category;
  live.count = 1;
  live.bytes = Bytes(n_bytes);
  return live;
}

Peak PeakOf(std::vector<LiveBuffers> live) {
  Peak peak;
  for (const LiveBuffers& buffers : live) {
    peak.allocated += buffers.bytes;
    peak.by_category[buffers.category] += buffers.bytes;
  }
  peak.live = std::move(live);
  return peak;
}

ReadTrace SampleFile(const std::string& path, SampleSize size) {
  return {path, {{SampleTrace(size).Make()}, "", "tidemark"}};
}

/// 12 layers, then the same with 10.
TraceReport TwoTraces() {
  return MakeTraceReport({SampleFile("runs/before.trace", {4, 12}), SampleFile("runs/after.trace", {4, 10})});
}

Bytes SumOf(const PeakDifference& difference) {
  return std::accumulate(difference.tensors.begin(), difference.tensors.end(), Bytes(),
                         [](Bytes sum, const TensorDifference& tensor) { return sum + tensor.difference(); });
}

TEST(ComparePeaks, addsUpFamiliesAndPutsTheLargestDifferenceFirst) {
  // before 100 + 30 + 20 = 150, after 100 + 45 + 8 = 153
  const Peak before = PeakOf({Live("w", Category::parameter, 100), Live("layers.0.a", Category::activation, 10),
                              Live("layers.1.a", Category::activation, 20), Live("g", Category::tp_gather, 20)});
  const Peak after = PeakOf({Live("w", Category::parameter, 100), Live("layers.0.a", Category::activation, 45),
                             Live("g", Category::tp_gather, 8)});
  const PeakDifference difference = ComparePeaks(before, after);
  ASSERT_EQ(difference.tensors.size(), 3U);
  EXPECT_EQ(difference.tensors[0].name, "layers.*.a");
  EXPECT_EQ(difference.tensors[0].difference(), Bytes(15));
  EXPECT_EQ(difference.tensors[1].name, "g");
  EXPECT_EQ(difference.tensors[1].difference(), Bytes(-12));
  EXPECT_EQ(difference.tensors[2].difference(), Bytes(0));
  EXPECT_EQ(difference.difference(), Bytes(3));
  EXPECT_EQ(SumOf(difference), Bytes(3));
}

TEST(ComparePeaks, keepsTensorsOfOneNameButTwoCategoriesApart) {
  const PeakDifference difference =
      ComparePeaks(PeakOf({Live("x", Category::activation, 5), Live("x", Category::bucket, 7)}), PeakOf({}));
  EXPECT_EQ(difference.tensors.size(), 2U);
  EXPECT_EQ(SumOf(difference), Bytes(-12));
}

TEST(ComparePeaks, takesWhatHasAnotherNameButTheSameCategoryAndBytesForOneTensor) {
  const Peak before =
      PeakOf({Live("accumulated gradient of v", Category::accumulator, 8),
              Live("accumulated gradient of w", Category::accumulator, 8), Live("slot of w", Category::bucket, 8)});
  const Peak after = PeakOf(
      {Live("main gradient of w", Category::accumulator, 8), Live("main gradient of v", Category::accumulator, 8)});
  const PeakDifference difference = ComparePeaks(before, after);
  ASSERT_EQ(difference.tensors.size(), 3U);
  EXPECT_EQ(difference.tensors[0].name, "slot of w");
  EXPECT_EQ(difference.tensors[1].name, "accumulated gradient of v");
  EXPECT_EQ(difference.tensors[1].name_after, "main gradient of v");
  EXPECT_EQ(difference.tensors[2].name_after, "main gradient of w");
  EXPECT_EQ(SumOf(difference), Bytes(-8));
}

TEST(ComparePeaks, keepsApartWhatOnlyHappensToHaveTheSameBytes) {
  const PeakDifference difference = ComparePeaks(PeakOf({Live("residual gradient", Category::activation, 8)}),
                                                 PeakOf({Live("layer.down_scattered", Category::activation, 8)}));
  ASSERT_EQ(difference.tensors.size(), 2U);
  EXPECT_EQ(difference.tensors[0].name_after, "");
  EXPECT_EQ(difference.tensors[1].name_after, "");
  EXPECT_EQ(SumOf(difference), Bytes(0));
}

TEST(TraceReport, differencesOfTheTensorsSumToThatOfThePeaks) {
  const TraceReport report = TwoTraces();
  ASSERT_EQ(report.differences.size(), 1U);
  EXPECT_EQ(report.Highest(), 0U);
  EXPECT_LT(report.differences[0].difference(), Bytes(0));
  EXPECT_EQ(SumOf(report.differences[0]), report.differences[0].difference());
}

TEST(TraceReport, namesFilesWithoutFolderAndEndingWhereThatTellsThemApart) {
  EXPECT_EQ(TwoTraces().traces[1].label, "after");
  const TraceReport same = MakeTraceReport(
      {SampleFile("a/x.trace", {1, 2}), SampleFile("b/x.trace", {1, 2}), SampleFile("b/x.trace", {1, 2})});
  EXPECT_EQ(same.traces[0].label, "a/x.trace");
  EXPECT_EQ(same.traces[1].label, "b/x.trace");
  EXPECT_EQ(same.traces[2].label, "b/x.trace (2)");
}

TEST(TraceReport, fitsIsWhatThePredictionSaidElseWhatIsReserved) {
  ReadTrace file = SampleFile("x.trace", {4, 12});
  Trace& trace = file.file.traces[0];
  trace.device_memory = Bytes();
  EXPECT_EQ(MakeTraceReport({file}).traces[0].Fits(), std::nullopt);
  const Bytes reserved = *MakeTraceReport({file}).traces[0].role.reserved;
  trace.device_memory = reserved;
  EXPECT_EQ(MakeTraceReport({file}).traces[0].Fits(), true);
  trace.device_high = reserved + Bytes(1);
  EXPECT_EQ(MakeTraceReport({file}).traces[0].Fits(), false);
}

TEST(TraceReport, fitsOnlyWhereEveryRoleDoes) {
  ReadTrace file = SampleFile("x.trace", {4, 12});
  file.file.traces.push_back(file.file.traces[0]);
  file.file.traces[1].role = "stage 1";
  for (Trace& trace : file.file.traces) {
    trace.device_memory = Bytes(1000);
    trace.device_high = Bytes(900);
  }
  EXPECT_EQ(MakeTraceReport({file}, file.file.traces[0].role).traces[0].Fits(), true);
  file.file.traces[1].device_high = Bytes(1001);
  const TraceSummary summary = MakeTraceReport({file}, file.file.traces[0].role).traces[0];
  EXPECT_EQ(summary.Fits(), false);
  EXPECT_EQ(summary.needed_by, "stage 1");
}

TEST(TraceReport, showsTheSameRoleOfEveryFile) {
  ReadTrace first = SampleFile("a.trace", {4, 4});
  first.file.traces.push_back(SampleTrace({4, 12}).Make());
  first.file.traces[1].role = "stage 1";
  ReadTrace second = SampleFile("b.trace", {4, 12});
  second.file.traces.push_back(SampleTrace({4, 4}).Make());
  second.file.traces[1].role = "stage 1";
  const TraceReport report = MakeTraceReport({first, second});
  EXPECT_EQ(report.traces[0].role.role, "stage 1");  // where the first file peaks highest
  EXPECT_EQ(report.traces[1].role.role, "stage 1");
  EXPECT_THAT(RenderAs("markdown", report), HasSubstr("stage 0 peaks higher"));
  EXPECT_EQ(MakeTraceReport({first, second}, "stage 0").traces[0].role.role, "stage 0");
}

TEST(TraceReport, tellsWhereTheJobsDiffer) {
  ReadTrace first = SampleFile("a.trace", {1, 2});
  ReadTrace second = SampleFile("b.trace", {1, 2});
  first.file.traces[0].job_yaml = "layout: {dp: 1, tp: 8}\nstrategy: nanotron  # from job.yaml\n";
  second.file.traces[0].job_yaml = "layout: {dp: 2, tp: 8}\nstrategy: nanotron  # by default\nextra: [1, 2]\n";
  const TraceReport report = MakeTraceReport({first, second});
  ASSERT_EQ(report.jobs.size(), 2U);
  EXPECT_EQ(report.jobs[0].key, "extra");
  EXPECT_EQ(report.jobs[0].values, (std::vector<std::string>{"-", "[1,2]"}));
  EXPECT_EQ(report.jobs[1].key, "layout.dp");
}

TEST(TraceReport, saysInWordsWhichPeaksHighestAndWhy) {
  const std::string text = RenderAs("markdown", TwoTraces());
  EXPECT_THAT(text, HasSubstr("before peaks highest: "));
  EXPECT_THAT(text, HasSubstr("The peak falls by "));
  EXPECT_THAT(text, HasSubstr("most of all by layer.moments (optimizer, -"));
}

TEST(TraceReport, jsonHasEveryKeyOfItsSchema) {
  const Json json = Json::parse(RenderAs("json", TwoTraces()));
  EXPECT_EQ(json["schema"], "tidemark.report/1");
  for (const char* pointer :
       {"/traces/0/format", "/traces/0/origin", "/traces/0/events", "/traces/0/peak/allocated_bytes",
        "/traces/0/peak/reserved_bytes", "/traces/0/peak/by_category/activation", "/traces/0/peak/live/0/name",
        "/traces/0/peak/at/phase", "/traces/1/fits", "/differences/0/peak_delta_bytes",
        "/differences/0/tensors/0/difference_bytes"}) {
    EXPECT_TRUE(json.contains(Json::json_pointer(pointer))) << pointer;
  }
  EXPECT_TRUE(json["traces"][0]["peak"]["device_bytes"].is_null());  // the sample does not tell it
}

TEST(TraceReport, everyRendererShowsOneTraceAndSeveral) {
  for (const auto& renderer : MakeRenderers()) {
    const std::string one = renderer->Render(MakeTraceReport({SampleFile("x.trace", {2, 3})}), {});
    EXPECT_THAT(one, HasSubstr("a made-up job")) << renderer->name();
    EXPECT_THAT(renderer->Render(TwoTraces(), {}), HasSubstr("before")) << renderer->name();
  }
}

/// Two ranks in a file: 12 layers on the first, 6 on the second.
TraceReport TwoRanks() {
  ReadTrace file{"runs/step.trace", {{SampleTrace({4, 12}).Make(), SampleTrace({4, 6}).Make()}, "", "tidemark"}};
  file.file.traces[1].role = "stage 1";
  file.file.traces[1].ranks = 4;
  return MakeTraceReport({file});
}

TEST(TraceReport, laysRanksBesideEachOther) {
  const TraceReport report = TwoRanks();
  ASSERT_EQ(report.traces[0].roles.size(), 2U);
  const std::vector<RolePeak>& roles = report.traces[0].roles;
  EXPECT_EQ(roles[0].role, "stage 0");
  EXPECT_EQ(roles[1].ranks, 4);
  // Six layers less: parameters, moments, gradients and what the forward pass saved.
  const std::int64_t layer = std::int64_t{300 + 600 + 300 + 420 + 560} << 20;
  EXPECT_EQ(roles[0].allocated - roles[1].allocated, Bytes(6 * layer));
  for (const char* renderer : {"terminal", "html", "markdown"}) {
    EXPECT_THAT(RenderAs(renderer, report), HasSubstr("stage 0 peaks highest")) << renderer;
    EXPECT_THAT(RenderAs(renderer, report), HasSubstr("12.8 GiB")) << renderer;  // 6 x 2180 MiB
  }
  EXPECT_EQ(Json::parse(RenderAs("json", report))["traces"][0]["roles"][1]["allocated_bytes"],
            roles[1].allocated.count());
  EXPECT_THAT(RenderAs("terminal", TwoTraces()), Not(HasSubstr("peaks highest; ranks")));
}

TEST(TraceReport, addsUpFromTensorsToTheDevice) {
  ReadTrace file = SampleFile("step.trace", {4, 12});
  Trace& trace = file.file.traces[0];
  trace.device_low = Bytes(std::int64_t{60} << 30);
  trace.device_expected = Bytes(std::int64_t{61} << 30);
  trace.device_high = Bytes(std::int64_t{62} << 30);
  const TraceReport report = MakeTraceReport({file});
  const RoleReport& role = report.traces[0].role;
  const std::string text = RenderAs("terminal", report);
  EXPECT_THAT(text, HasSubstr("From tensors to the device"));
  for (const Bytes bytes : {role.peak.allocated, *role.allocator_bytes, *role.reserved, trace.device_expected}) {
    EXPECT_THAT(text, HasSubstr(Grouped(bytes.count())));
  }
  EXPECT_THAT(text, HasSubstr(Text(trace.device_expected - *role.reserved)));
}

TEST(TraceReport, saysWhatThePredictionsAssume) {
  ReadTrace predicted = SampleFile("step.trace", {2, 3});
  predicted.file.traces[0].assumed = {"machine h100-sxm-80gb"};
  predicted.file.traces[0].not_modelled = {"data loading"};
  const TraceReport report = MakeTraceReport({predicted, SampleFile("run.trace", {2, 3})});
  for (const char* renderer : {"terminal", "html", "markdown"}) {
    const std::string text = RenderAs(renderer, report);
    EXPECT_THAT(text, AllOf(HasSubstr("step: assumed"), HasSubstr("machine h100-sxm-80gb"))) << renderer;
    EXPECT_THAT(text, AllOf(HasSubstr("step: not modelled"), HasSubstr("data loading"))) << renderer;
    EXPECT_THAT(text, Not(HasSubstr("run: assumed"))) << renderer;
  }
  EXPECT_EQ(Json::parse(RenderAs("json", report))["traces"][0]["assumed"][0], "machine h100-sxm-80gb");
}

TEST(TraceReport, carriesTheErrorsOfTheJobsThatWereTraced) {
  ReadTrace wrong = SampleFile("wrong.trace", {2, 3});
  wrong.file.traces[0].lints = {{"wrong-gradient", "error", "its window is short", "rescale it"},
                                {"view", "note", "nothing saved", ""}};
  for (const TraceReport& report :
       {MakeTraceReport({wrong}), MakeTraceReport({SampleFile("right.trace", {2, 3}), wrong})}) {
    for (const char* renderer : {"terminal", "html", "markdown"}) {
      const std::string text = RenderAs(renderer, report);
      EXPECT_THAT(text, HasSubstr("GRADIENTS ARE WRONG: its window is short")) << renderer;
      EXPECT_THAT(text, HasSubstr("rescale it")) << renderer;
      EXPECT_THAT(text, Not(HasSubstr("nothing saved"))) << renderer;
    }
    const Json traces = Json::parse(RenderAs("json", report))["traces"];
    EXPECT_EQ(traces.back()["lints"].size(), 2U);
    EXPECT_EQ(traces.back()["lints"][0]["id"], "wrong-gradient");
  }
  EXPECT_THAT(RenderAs("terminal", MakeTraceReport({SampleFile("right.trace", {2, 3})})), Not(HasSubstr("WRONG")));
}

TEST(TraceReport, anEmptyTraceHasAPeakOfNothing) {
  EXPECT_EQ(MakeTraceReport({{"x", {{Trace()}, "", "tidemark"}}}).traces[0].role.peak.allocated, Bytes(0));
}

TEST(TraceReport, doesNotLetNamesBreakOutOfThePage) {
  ReadTrace first = SampleFile("</script><script>alert(1)</script>", {1, 2});
  first.file.traces[0].tensors[0].name = "</script><script>alert(1)</script>";
  EXPECT_THAT(RenderAs("html", MakeTraceReport({first, SampleFile("b", {1, 2})})), Not(HasSubstr("<script>alert")));
}

}  // namespace
}  // namespace tidemark::trace_report_test
