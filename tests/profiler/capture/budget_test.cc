// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/base/sanitizer.h"
#include "tests/profiler/execute/executed_job.h"

namespace tidemark {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

Budget Used(Bytes used, Bytes tensors) {
  Budget budget;
  budget.used = budget.resident_peak = used;
  budget[BudgetPart::tensors] = tensors;
  return budget;
}

TEST(Budget, AllowsAResidualOfTwoPercent) {
  EXPECT_EQ(Used(Bytes(1000 * kMiB), {}).bound(), Bytes(20 * kMiB));
  EXPECT_EQ(Used(Bytes(256 * kMiB), {}).bound(), Bytes(256 * kMiB / 50));
  EXPECT_EQ(Used(Bytes(10 * kMiB), {}).bound(), Bytes(256 * kMiB / 50))
      << "a small job has pages that nobody counts, too";
  EXPECT_EQ(Used(Bytes(10'000 * kMiB), {}).bound(), Bytes(32 * kMiB)) << "64 MiB are found in any job";
}

TEST(Budget, IsInDoubtWhereItsPartsAreNotWhatIsUsed) {
  const Bytes used(1000 * kMiB), allowed(20 * kMiB);
  EXPECT_TRUE(DoubtsOf(Used(used, used)).empty());
  EXPECT_TRUE(DoubtsOf(Used(used, used - allowed)).empty());
  EXPECT_TRUE(DoubtsOf(Used(used, used + allowed)).empty());
  EXPECT_EQ(DoubtsOf(Used(used, used - allowed - Bytes(1))).size(), 1U);
  EXPECT_EQ(DoubtsOf(Used(used, used + allowed + Bytes(1))).size(), 1U);
  Budget missed = Used(used, used);
  missed.resident_peak = used + allowed + Bytes(1);
  EXPECT_EQ(DoubtsOf(missed).size(), 1U);
}

TEST(Budget, ComesThroughAMessageAsItWas) {
  Budget budget = Used(Bytes(77), Bytes(-5));
  budget.rank = 3;
  budget[BudgetPart::profiler] = Bytes(9);
  budget.reasons = {"first reason", "second: with, marks"};
  const Budget same = Unpack(Pack(budget));
  EXPECT_EQ(same.rank, 3);
  EXPECT_EQ(same.parts, budget.parts);
  EXPECT_EQ(same.used, budget.used);
  EXPECT_EQ(same.resident_peak, budget.resident_peak);
  EXPECT_EQ(same.reasons, budget.reasons);
}

// A sanitizer brings its own malloc: a measurement that cannot count the heap says so, and no other does.
TEST(Budget, OfAHeapThatNobodyCountsIsInDoubt) {
  const Job job = SmallJob("ddp-last");
  const LoweredSteps lowered(job, 1);
  const auto world = MakeSingleWorld();
  const auto run = RunSteps(job, lowered.steps(), {.watch = true}, *world);
  ASSERT_TRUE(run);
  const std::vector<std::string>& reasons = run->budget->reasons;
  EXPECT_EQ(std::any_of(
                reasons.begin(), reasons.end(),
                [](const std::string& reason) { return reason.find("does not count its heap") != std::string::npos; }),
            kSanitized);
}

}  // namespace
}  // namespace tidemark
