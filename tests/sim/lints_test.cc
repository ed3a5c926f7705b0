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

TEST(Lints, APipelineWithFewerMicrobatchesThanStagesIsPointedOut) {
  Job job = OracleJob("nanotron", 3);
  job.layout.pp = 4;
  EXPECT_TRUE(Has(job, "pipeline-underfilled"));
  job.accumulation_steps = 4;
  EXPECT_FALSE(Has(job, "pipeline-underfilled"));
}

}  // namespace
}  // namespace tidemark
