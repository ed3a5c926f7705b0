// SPDX-License-Identifier: Apache-2.0
#include "sim/predict/lints.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/oracle_job.h"

namespace tidemark {
namespace {

bool Has(const Job& job, const std::string& id) {
  const std::vector<Lint> lints = LintJob(job);
  return std::any_of(lints.begin(), lints.end(), [&](const Lint& lint) { return lint.id == id; });
}

TEST(Lints, AllReducingEveryMicrobatchIsPointedOut) {
  EXPECT_TRUE(Has(OracleJob("ddp-every", 4), "sync-every-microbatch"));
  EXPECT_FALSE(Has(OracleJob("ddp-every", 1), "sync-every-microbatch"));
  EXPECT_FALSE(Has(OracleJob("ddp-last", 4), "sync-every-microbatch"));
  EXPECT_FALSE(Has(OracleJob("fsdp2-scatter-each", 4), "sync-every-microbatch"));
}

TEST(Lints, ManyMicrobatchesSummedInBf16ArePointedOut) {
  EXPECT_TRUE(Has(OracleJob("ddp-last", 32), "low-precision-sum"));
  EXPECT_FALSE(Has(OracleJob("ddp-last", 31), "low-precision-sum"));
  EXPECT_FALSE(Has(OracleJob("nanotron", 64), "low-precision-sum"));
  EXPECT_FALSE(Has(OracleJob("fsdp2-scatter-each", 64), "low-precision-sum"));
}

TEST(Lints, AWindowThatIsNotTheMeanIsAnError) {
  Job job = OracleJob("ddp-last", 4);
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = "(i + 1) % steps == 0";
  EXPECT_FALSE(Has(job, "wrong-gradient"));
  job.axes.sync.expression = "i % (steps - 1) == 0";  // windows of 1 and 3, each divided by 4
  EXPECT_TRUE(Has(job, "wrong-gradient"));
  job = OracleJob("ddp-last", 4);
  job.last_window = {LastWindow::Policy::not_rescaled, 3};
  EXPECT_TRUE(Has(job, "wrong-gradient"));
  job.last_window.policy = LastWindow::Policy::rescaled;
  EXPECT_FALSE(Has(job, "wrong-gradient"));
  job.last_window.policy = LastWindow::Policy::drop;
  EXPECT_FALSE(Has(job, "wrong-gradient"));
  EXPECT_TRUE(Has(job, "dropped-microbatches"));
}

TEST(Lints, AForwardPassOutsideNoSyncIsPointedOut) {
  Job job = OracleJob("ddp-last", 4);
  EXPECT_FALSE(Has(job, "forward-outside-no-sync"));
  job.axes.sync.forward_in_no_sync = false;
  EXPECT_TRUE(Has(job, "forward-outside-no-sync"));
}

TEST(Lints, ViewsHelpOnlyWithGradientsZeroedInPlace) {
  Job job = OracleJob("ddp-last", 4);
  job.axes.buffers.gradient_as_bucket_view = true;
  EXPECT_TRUE(Has(job, "view-and-set-to-none"));
  job.axes.buffers.set_to_none = false;
  EXPECT_FALSE(Has(job, "view-and-set-to-none"));
}

TEST(Lints, APipelineWithFewerMicrobatchesThanStagesIsPointedOut) {
  Job job = OracleJob("nanotron", 3);
  job.layout.pp = 4;
  EXPECT_TRUE(Has(job, "pipeline-underfilled"));
  job.accumulation_steps = 4;
  EXPECT_FALSE(Has(job, "pipeline-underfilled"));
}

}  // namespace
}  // namespace tidemark
