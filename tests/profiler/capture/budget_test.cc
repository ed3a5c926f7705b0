// SPDX-License-Identifier: Apache-2.0
#include "profiler/capture/budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "profiler/capture/process_view.h"
#include "profiler/device/host_device.h"
#include "tests/base/sanitizer.h"
#include "tests/profiler/execute/executed_job.h"

namespace tidemark::budget_test {
namespace {

constexpr std::int64_t kMiB = 1 << 20;

Budget Used(Bytes used, Bytes tensors) {
  Budget budget;
  budget.used = used;
  budget.resident_peak = used;
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
  budget.parts[BudgetPart::modules] = std::nullopt;
  budget.reasons = {"first reason", "second: with, marks"};
  const Budget same = Unpack(Pack(budget));
  EXPECT_EQ(same.rank, 3);
  EXPECT_EQ(same.parts, budget.parts);
  EXPECT_EQ(same.used, budget.used);
  EXPECT_EQ(same.memory, Budget::Memory::process);
  EXPECT_EQ(same.resident_peak, budget.resident_peak);
  EXPECT_EQ(same.reasons, budget.reasons);
}

TEST(Budget, OfAGpuAllowsOnePercent) {
  Budget budget = BudgetOf(Budget::Memory::gpu, {});
  budget.used = Bytes(2000 * kMiB);
  EXPECT_EQ(budget.bound(), Bytes(20 * kMiB));
  budget.used = Bytes(500 * kMiB);
  EXPECT_EQ(budget.bound(), Bytes(16 * kMiB)) << "pages that rooms and modules fill in part";
  budget.used = Bytes(80'000 * kMiB);
  EXPECT_EQ(budget.bound(), Bytes(32 * kMiB)) << "64 MiB are found in any job";
  const Budget same = Unpack(Pack(budget));
  EXPECT_EQ(same.memory, Budget::Memory::gpu);
  EXPECT_EQ(same.resident_peak, std::nullopt);
}

TEST(Budget, DoesNotCountWhatIsNotKnown) {
  Budget budget = BudgetOf(Budget::Memory::gpu, std::array{BudgetPart::tensors, BudgetPart::context});
  budget.used = Bytes(100);
  budget[BudgetPart::tensors] = Bytes(60);
  budget[BudgetPart::context] = Bytes(30);
  EXPECT_EQ(budget.residual(), Bytes(10));
  budget.parts[BudgetPart::context] = std::nullopt;
  EXPECT_EQ(budget.residual(), Bytes(40));
}

// A sanitizer brings its own malloc: a measurement that cannot count the heap says so, and no other does.
TEST(Budget, OfAHeapThatNobodyCountsIsInDoubt) {
  const Job job = SmallJob("ddp-last");
  const LoweredSteps lowered(job, 1);
  const auto world = MakeSingleWorld();
  HostDevice processor;
  const auto run = RunSteps(job, lowered.steps(), {.device = &processor, .watch = WatchProcess(processor)}, *world);
  ASSERT_TRUE(run);
  const std::vector<std::string>& reasons = run->budget->reasons;
  EXPECT_EQ(std::any_of(
                reasons.begin(), reasons.end(),
                [](const std::string& reason) { return reason.find("does not count its heap") != std::string::npos; }),
            kSanitized);
}

}  // namespace
}  // namespace tidemark::budget_test
