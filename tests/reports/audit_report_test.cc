// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/audit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "reports/render/render.h"

namespace tidemark::audit_report_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

AuditReport Wrong() {
  AuditReport report;
  report.title = "a made-up job";
  report.step = "steady";
  report.version = "1.0";
  report.synchronises = report.steps = "i % 3 == 0";
  report.accumulation_steps = 4;
  report.evaluated_microbatches = 12;
  report.clean = false;
  report.hazards = {{"clobber", "pool", "layer.x[0][1]", "layer.y", "layer.z", 0, 1, "stage 0", 0, "a sentence", ""},
                    {"race", "pool", "whole", "a", "b", std::nullopt, std::nullopt, "stage 0", 0, "another", ""}};
  report.lints = {{"wrong-gradient", "error", "a reason", "a way out"}, {"other", "note", "a remark", ""}};
  report.windows = {{{0}, 0.25, "1/4", true, false}};
  for (std::int64_t first = 1; first < 10; first += 3) {
    report.windows.push_back({{first, first + 1, first + 2}, 0.75, "3/4", true, false});
  }
  report.pending = {10, 11};
  return report;
}

TEST(AuditReport, jsonHasEveryKeyOfItsSchema) {
  const Json json = Json::parse(RenderAs("json", Wrong()));
  EXPECT_EQ(json["schema"], "tidemark.audit/1");
  for (const char* key : {"kind", "buffer", "value", "overwritten_by", "read_by", "microbatch", "layer"}) {
    EXPECT_TRUE(json["hazards"][0].contains(key)) << key;
  }
  EXPECT_EQ(json["hazards"][0]["layer"], 1);
  EXPECT_TRUE(json["hazards"][1]["layer"].is_null());
  EXPECT_EQ(json["hazards"][1]["kind"], "race");
  EXPECT_EQ(json["lints"][0]["id"], "wrong-gradient");
  EXPECT_EQ(json["windows"][1]["microbatches"], Json({1, 2, 3}));
  EXPECT_EQ(json["windows"][1]["gradient_factor"], 0.75);
  EXPECT_EQ(json["windows"][1]["lost"], false);
  EXPECT_TRUE(json["windows"][1]["chunks"].is_null());
  EXPECT_TRUE(json["hazards"][0]["side"].is_null());
  EXPECT_TRUE(json["hazards"][0]["chunk"].is_null());
  EXPECT_EQ(json["pending"], Json({10, 11}));
  EXPECT_EQ(json["idle"], Json::array());
  EXPECT_EQ(json["clean"], false);
}

TEST(AuditReport, whatIsKeptIsToldWithItsReasonAndWithoutOneAsADoubt) {
  AuditReport report = Wrong();
  report.idle = {{"layer.x", Bytes(512), "layer.y", "backward", "", "stage 1", 1},
                 {"gradient of *", Bytes(1024), "optimizer update", "optimizer", "until zero_grad", "stage 0", 0}};
  const Json json = Json::parse(RenderAs("json", report))["idle"];
  EXPECT_TRUE(json[0]["why"].is_null());
  EXPECT_EQ(json[1], Json({{"buffers", "gradient of *"},
                           {"bytes", 1024},
                           {"last_used_by", "optimizer update"},
                           {"freed_in", "optimizer"},
                           {"why", "until zero_grad"},
                           {"role", "stage 0"},
                           {"stage", 0}}));
  for (const char* renderer : {"terminal", "markdown", "html"}) {
    const std::string text = RenderAs(renderer, report);
    EXPECT_THAT(text, HasSubstr("Kept after their last use")) << renderer;
    EXPECT_THAT(text, HasSubstr("may be freed too late here")) << renderer;
    EXPECT_THAT(text, HasSubstr("1.00 KiB, last used by optimizer")) << renderer;
  }
  const std::string patterns = "joined gradients of *, fp32 gradients of *, new parameters of *, new moments of *";
  report.idle[1].buffers = patterns;
  EXPECT_THAT(RenderAs("terminal", report), HasSubstr("  " + patterns + ":\n    1.00 KiB, last used"));
  report.idle.clear();
  EXPECT_THAT(RenderAs("terminal", report), Not(HasSubstr("Kept after")));
}

TEST(AuditReport, gradCachesChunksAreOfASideAndNoMicrobatches) {
  AuditReport report = Wrong();
  report.chunks = true;
  report.hazards[0].side = "passage";
  const Json json = Json::parse(RenderAs("json", report));
  EXPECT_TRUE(json["hazards"][0]["microbatch"].is_null());
  EXPECT_EQ(json["hazards"][0]["side"], "passage");
  EXPECT_EQ(json["hazards"][0]["chunk"], 0);
  EXPECT_TRUE(json["windows"][1]["microbatches"].is_null());
  EXPECT_EQ(json["windows"][1]["chunks"], Json({1, 2, 3}));
  EXPECT_THAT(RenderAs("terminal", report), HasSubstr("passage chunk 0"));
  EXPECT_THAT(RenderAs("terminal", report), HasSubstr("chunks of each side"));
}

TEST(AuditReport, aFactorBeyondAllNumbersIsNullAndNamedInWords) {
  AuditReport report = Wrong();
  report.windows = {{{0}, std::nullopt, "too large to tell", true, false}};
  const Json json = Json::parse(RenderAs("json", report));
  EXPECT_TRUE(json["windows"][0]["gradient_factor"].is_null());
  EXPECT_EQ(json["windows"][0]["gradient_factor_exact"], "too large to tell");
  EXPECT_THAT(RenderAs("terminal", report), HasSubstr("too large to tell  too large"));
}

TEST(AuditReport, lostGradientsAreNotCalledReplicasThatDiffer) {
  AuditReport report = Wrong();
  report.windows = {{{0}, 0, "0", false, false, true}};
  EXPECT_THAT(RenderAs("terminal", report), HasSubstr("0  not all of its gradients reach the optimizer"));
  EXPECT_THAT(RenderAs("terminal", report), Not(HasSubstr("replicas differ")));
  EXPECT_EQ(Json::parse(RenderAs("json", report))["windows"][0]["lost"], true);
}

TEST(AuditReport, withoutAWindowNothingIsSaidOfItsMean) {
  AuditReport dropped;
  dropped.title = "a made-up job";
  dropped.pending = {0, 1, 2};
  const std::string text = RenderAs("terminal", dropped);
  EXPECT_THAT(text, HasSubstr("NOTHING WRONG FOUND"));
  EXPECT_THAT(text, HasSubstr("the optimizer does not step"));
  EXPECT_THAT(text, Not(HasSubstr("the mean of its microbatches")));
  EXPECT_THAT(text, Not(HasSubstr("every window's gradient")));
}

TEST(AuditReport, aWarningAboutNumbersStandsInTheVerdict) {
  AuditReport report;
  report.title = "a made-up job";
  report.windows = {{{0, 1}, 1, "1", true, true}};
  report.lints = {{"mean-of-means", "warning", "sequences are of unequal length"}};
  EXPECT_THAT(RenderAs("terminal", report),
              HasSubstr("NO FAULT FOUND, BUT A WARNING ABOUT ITS NUMBERS (mean-of-means)"));
  report.lints.push_back({"low-precision-sum", "warning", "many additions"});
  EXPECT_THAT(RenderAs("terminal", report), HasSubstr("BUT WARNINGS ABOUT ITS NUMBERS (mean-of-means, low-"));
  report.lints = {{"pipeline-underfilled", "warning", "some stage always waits"}, {"mean-of-means", "note", "a note"}};
  EXPECT_THAT(RenderAs("terminal", report), HasSubstr("NOTHING WRONG FOUND"));
}

TEST(AuditReport, textFoldsWindowsThatAreAlike) {
  const std::string text = RenderAs("terminal", Wrong());
  EXPECT_THAT(text, HasSubstr("WRONG: 1 clobbered value, 1 race, 4 windows with a wrong gradient, 1 error"));
  EXPECT_THAT(text, HasSubstr("In 12 microbatches it steps behind 0, 3, 6, 9."));
  EXPECT_THAT(text, HasSubstr("2 to 4   1 to 9"));
  EXPECT_THAT(text, HasSubstr("3 each"));
  EXPECT_THAT(text, HasSubstr("3/4 = 0.750"));
  EXPECT_THAT(text, HasSubstr("pending"));
  EXPECT_THAT(text, HasSubstr("a way out"));
}

TEST(AuditReport, textNamesTheRoleWhereThereAreSeveral) {
  AuditReport report = Wrong();
  EXPECT_THAT(RenderAs("terminal", report), Not(HasSubstr("stage 0")));
  report.several_roles = true;
  EXPECT_THAT(RenderAs("terminal", report), HasSubstr("stage 0"));
}

TEST(AuditReport, ALongListIsCutAndSaysSo) {
  AuditReport report = Wrong();
  report.hazards.resize(50, report.hazards[0]);
  EXPECT_THAT(RenderAs("terminal", report), HasSubstr("10 more"));
  EXPECT_EQ(Json::parse(RenderAs("json", report))["hazards"].size(), 50U);
}

TEST(AuditReport, everyRendererShowsIt) {
  AuditReport right;
  right.title = "a made-up job";
  right.step = "steady";
  right.windows = {{{0, 1}, 1, "1", true, true}};
  for (const auto& renderer : MakeRenderers()) {
    EXPECT_THAT(renderer->Render(right, {}), HasSubstr("a made-up job")) << renderer->name();
    EXPECT_THAT(renderer->Render(Wrong(), {}), HasSubstr("layer.z")) << renderer->name();
  }
  EXPECT_THAT(RenderAs("terminal", right), HasSubstr("NOTHING WRONG FOUND"));
}

}  // namespace
}  // namespace tidemark::audit_report_test
