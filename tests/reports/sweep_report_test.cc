// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/sweep.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "reports/render/render.h"
#include "tests/reports/sample_sweep.h"

namespace tidemark::sweep_report_test {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::ordered_json;

TEST(SweepReport, jsonHasEveryKeyOfItsSchema) {
  const SweepReport report = SampleSweep(32);
  const Json json = Json::parse(RenderAs("json", report));
  EXPECT_EQ(json["schema"], "tidemark.sweep/1");
  for (const char* pointer : {"/title",
                              "/job/layout/tp",
                              "/machine",
                              "/device_memory_bytes",
                              "/keys/0",
                              "/complete",
                              "/seconds",
                              "/front/x",
                              "/front/y",
                              "/rows_left_out",
                              "/refusals/1/reason",
                              "/refusals/1/count",
                              "/provenance/version",
                              "/rows/0/allocated_bytes",
                              "/rows/0/reserved_bytes",
                              "/rows/0/device_high_bytes",
                              "/rows/0/usable_memory_bytes",
                              "/rows/0/step_ns",
                              "/rows/0/compute_ns",
                              "/rows/0/recompute_ns",
                              "/rows/0/exposed_communication_ns",
                              "/rows/0/bubble_ns",
                              "/rows/0/optimizer_ns",
                              "/rows/0/host_ns",
                              "/rows/0/tokens_per_s_per_gpu",
                              "/rows/0/mfu",
                              "/rows/0/fits",
                              "/rows/0/pareto",
                              "/rows/0/phase",
                              "/rows/0/by_category/activation"}) {
    EXPECT_TRUE(json.contains(Json::json_pointer(pointer))) << pointer;
  }
  EXPECT_EQ(json["size"], json["evaluated"].get<int>() + json["pruned"].get<int>() + json["refused"].get<int>());
  EXPECT_EQ(json["rows"].size(), 32U);
}

TEST(SweepReport, jsonRowsBeginWithTheVariedKeysAsAJobSaysThem) {
  SweepReport report = SampleSweep(1);
  report.keys = {"layout.tp", "layout.sp", "sync.bucket_bytes", "machine"};
  report.rows[0].values = {"8", "true", "25 MiB", "\"16\""};
  const Json row = Json::parse(RenderAs("json", report))["rows"][0];
  EXPECT_EQ(row.items().begin().key(), "layout.tp");
  EXPECT_EQ(row["layout.tp"], 8);
  EXPECT_EQ(row["layout.sp"], true);
  EXPECT_EQ(row["sync.bucket_bytes"], "25 MiB");
  EXPECT_EQ(row["machine"], "16");
}

TEST(SweepReport, jsonPartsOfARowSumToItsTotals) {
  const Json json = Json::parse(RenderAs("json", SampleSweep(16)));
  for (const Json& row : json["rows"]) {
    std::int64_t nanos = 0, bytes = 0;
    for (const char* part :
         {"compute_ns", "recompute_ns", "exposed_communication_ns", "bubble_ns", "optimizer_ns", "host_ns"}) {
      nanos += row[part].get<std::int64_t>();
    }
    for (const auto& category : row["by_category"]) {
      bytes += category.get<std::int64_t>();
    }
    EXPECT_EQ(row["step_ns"], nanos);
    EXPECT_EQ(row["allocated_bytes"], bytes);
  }
}

TEST(SweepReport, whatOnlySomeEnginesAndMachinesKnowIsNull) {
  SweepReport report = SampleSweep(1);
  report.rows[0].mfu.reset();
  const Json row = Json::parse(RenderAs("json", report))["rows"][0];
  EXPECT_TRUE(row["mfu"].is_null());
  EXPECT_TRUE(row["reserved_bytes"].is_null());
  EXPECT_THAT(RenderAs("terminal", report), Not(HasSubstr("reserved")));
  report.rows[0].reserved = Bytes(std::int64_t{7} << 30);
  EXPECT_EQ(Json::parse(RenderAs("json", report))["rows"][0]["reserved_bytes"], std::int64_t{7} << 30);
  EXPECT_THAT(RenderAs("terminal", report), HasSubstr("7.00 GiB"));
}

TEST(SweepReport, textCountsEveryCombinationAndSaysWhyItWasRefused) {
  const std::string text = RenderAs("terminal", SampleSweep(16));
  EXPECT_THAT(text, HasSubstr("26 combinations: 16 priced, 3 pruned, 7 refused"));
  EXPECT_THAT(text, HasSubstr("5  shard.replicas does not divide layout.dp"));
  EXPECT_THAT(text, HasSubstr("52 combinations a second"));  // 26 in half a second
}

TEST(SweepReport, textSaysThatNothingFitsAndThatItWasInterrupted) {
  SweepReport report = SampleSweep(1);
  report.rows[0].fits = false;
  report.feasible = 0;
  report.complete = false;
  const std::string text = RenderAs("terminal", report);
  EXPECT_THAT(text, HasSubstr("none fits in 80.0 GiB; interrupted before"));
  EXPECT_THAT(text, Not(HasSubstr("fastest that fits")));
}

TEST(SweepReport, textShowsValuesWholeAndSaysHowManyRowsItLeavesOut) {
  SweepReport report = SampleSweep(1000);
  report.rows_left_out = 234;
  report.rows[3].values[0] = std::string(70, 'v');
  report.refusals[0].reason = std::string(300, 'x');
  const std::string text = RenderAs("terminal", report);
  EXPECT_THAT(text, HasSubstr("  " + std::string(70, 'v') + "  "));
  EXPECT_THAT(text, HasSubstr("accumulation_steps  "));
  EXPECT_THAT(text, Not(HasSubstr(std::string(101, 'x'))));
  EXPECT_THAT(text, HasSubstr("1,034 more that were priced"));  // 1000 - 200 shown + 234
}

TEST(SweepReport, textTellsAReasonToItsEnd) {
  SweepReport report = SampleSweep(1);
  std::string words;
  for (int i = 0; i < 40; ++i) {
    words += "word" + std::to_string(i) + " ";
  }
  report.refusals[0].reason = words;
  const std::string text = RenderAs("terminal", report);
  EXPECT_THAT(text, HasSubstr("5  word0 word1 "));
  EXPECT_THAT(text, HasSubstr("\n         word"));  // below its beginning
  EXPECT_THAT(text, HasSubstr(" word39\n"));
}

TEST(SweepReport, aKeyIsShortUnlessAnotherEndsAlike) {
  SweepReport report = SampleSweep(1);
  report.keys = {"layout.tp", "shard.optimizer", "precision.optimizer"};
  report.rows[0].values = {"2", "true", "fp32"};
  const std::string text = RenderAs("markdown", report);
  EXPECT_THAT(text, HasSubstr("| tp | shard.optimizer | precision.optimizer | peak |"));
}

}  // namespace
}  // namespace tidemark::sweep_report_test
