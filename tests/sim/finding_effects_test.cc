// SPDX-License-Identifier: Apache-2.0

// What models/findings/findings.yaml says that a mistake comes to (`effect`), against two predictions: with the mistake
// and without it.

#include <gtest/gtest.h>

#include "base/rational.h"
#include "sim/engine/closed_form.h"
#include "sim/lower/lower.h"
#include "sim/predict/audit.h"
#include "sim/predict/communication.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::finding_effects_test {
namespace {

/// Of the oracle model: parameters, and bytes of its bf16 gradients.
constexpr std::int64_t kParameters = 110'633'984;
constexpr std::int64_t kGradients = 2 * kParameters;

StepProgram Lowered(const Job& job) {
  Result<StepProgram> step = Lower(job, StepKind::steady);
  EXPECT_TRUE(step.ok()) << step.error().Text();
  return *std::move(step);
}

MemoryPeak PeakOf(const Job& job) { return FoldMemory(Lowered(job).roles.front()); }

std::int64_t AllReduced(const Job& job) {
  std::int64_t bytes = 0;
  for (const CommunicationRow& row : CountCommunication(Lowered(job).roles.front())) {
    bytes += row.kind == "all_reduce" ? row.payload.count() : 0;
  }
  return bytes;
}

/// The gradient of the job's only window over the mean.
Rational FactorOf(const Job& job) {
  const Result<JobAudit> audit = AuditJob(job, StepKind::steady);
  EXPECT_TRUE(audit.ok() && !audit->windows.empty());
  return audit->windows.front().factor;
}

TEST(FindingEffects, AForwardPassOutsideNoSyncAndNoNoSyncAtAllAllReduceMTimesAsMuch) {
  EXPECT_EQ(AllReduced(OracleJob("ddp-last", 4)), kGradients);
  EXPECT_EQ(AllReduced(OracleJob("ddp-forward-outside", 4)), 4 * kGradients);
  EXPECT_EQ(AllReduced(OracleJob("ddp-every", 4)), 4 * kGradients);
  EXPECT_EQ(AllReduced(OracleJob("ddp-every", 7)), 7 * kGradients);
}

TEST(FindingEffects, BucketViewsSaveNothingUnlessZeroedInPlaceWhichSavesOneSetOfGradients) {
  Job job = OracleJob("ddp-last", 4);
  const Bytes plain = PeakOf(job).allocated;
  job.axes.buffers.gradient_as_bucket_view = true;
  EXPECT_EQ(PeakOf(job).allocated, plain);
  job.axes.buffers.set_to_none = false;
  EXPECT_EQ(PeakOf(job).allocated, plain - Bytes(kGradients));
}

// Each further microbatch holds what four layers save, 124,026,880 bytes each, and what the head saves, until the one
// backward pass; with a backward pass each, further microbatches hold nothing.
TEST(FindingEffects, OneBackwardPassHoldsTheActivationsOfEveryMicrobatch) {
  const auto activations = [](std::int64_t microbatches) {
    const MemoryPeak peak = PeakOf(OracleJob("single-backward", microbatches));
    return peak.by_category[Category::activation] + peak.by_category[Category::logits];
  };
  const Bytes of_one_more = activations(3) - activations(2);
  EXPECT_EQ(activations(5) - activations(2), of_one_more * 3);
  EXPECT_GT(of_one_more, Bytes(4 * 124'026'880));
  EXPECT_EQ(PeakOf(OracleJob("ddp-last", 5)).allocated, PeakOf(OracleJob("ddp-last", 2)).allocated);
}

// Of bf16 elements, so large that the peak is where the bucket is.
TEST(FindingEffects, DeepSpeedsBucketIsAllocatedWholeWhateverTheModel) {
  const auto peak = [](std::int64_t elements, bool overlap) {
    Job job = OracleJob("deepspeed-zero2", 4);
    job.axes.sync.bucket_elements = elements;
    job.axes.sync.overlap = overlap;
    return PeakOf(job).allocated;
  };
  EXPECT_EQ(peak(2'000'000'000, false) - peak(1'700'000'000, false), Bytes(2 * 300'000'000));
  EXPECT_EQ(peak(2'000'000'000, true) - peak(1'700'000'000, true), Bytes(2 * 2 * 300'000'000));  // two of them
}

TEST(FindingEffects, AWrongDivisorScalesByWhatTheWindowHas) {
  Job job = OracleJob("ddp-last", 4);
  job.last_window = {LastWindow::Policy::not_rescaled, 3};
  EXPECT_EQ(FactorOf(job), Rational(3, 4));
}

TEST(FindingEffects, ALossOverAllRanksIsAveragedOnceTooOften) {
  EXPECT_EQ(FactorOf(OracleJob("gradcache-unscaled", 4)), Rational(1, 4));  // N = 4
  Job job = OracleJob("gradcache", 4);
  std::get<DualEncoder>(job.network.shape).gather = false;
  EXPECT_EQ(FactorOf(job), Rational(4, 1));
}

// Deferring on FSDP: gradients whole in place of a shard, P b_g (1 - 1/N), here fp32.
TEST(FindingEffects, WhatIsNotReducedCannotBeSharded) {
  EXPECT_EQ(PeakOf(OracleJob("fsdp2-defer", 4)).allocated - PeakOf(OracleJob("fsdp2-scatter-each", 4)).allocated,
            Bytes(4 * kParameters / 4 * 3));
}

// 1F1B holds min(M, p) microbatches on the first of p stages, GPipe all M.
TEST(FindingEffects, APipelineHoldsAsManyMicrobatchesAsItHasStages) {
  const auto first_stage = [](Schedule schedule, std::int64_t microbatches) {
    Job job = OracleJob("megatron", microbatches);
    job.layout.pp = 4;
    job.schedule = schedule;
    return PeakOf(job).allocated;
  };
  const Bytes one_more = first_stage(Schedule::one_f_one_b, 3) - first_stage(Schedule::one_f_one_b, 2);
  EXPECT_GT(one_more, Bytes(124'026'880));  // a stage is one layer, and hands over its input
  EXPECT_EQ(first_stage(Schedule::one_f_one_b, 4) - first_stage(Schedule::one_f_one_b, 2), one_more * 2);
  EXPECT_EQ(first_stage(Schedule::one_f_one_b, 9), first_stage(Schedule::one_f_one_b, 4));
  EXPECT_EQ(first_stage(Schedule::gpipe, 9) - first_stage(Schedule::gpipe, 4), one_more * 5);
}

}  // namespace
}  // namespace tidemark::finding_effects_test
