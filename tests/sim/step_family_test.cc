// SPDX-License-Identifier: Apache-2.0
#include "sim/sweep/step_family.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "sim/engine/closed_form.h"
#include "sim/predict/steps.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::step_family_test {
namespace {

/// One whose host is slow, one whose streams take turns.
std::vector<Machine> Machines() {
  std::vector<Machine> machines(3, TestMachine());
  machines[1].host_issue = Nanos(200'000);
  machines[2].overlap = false;
  return machines;
}

StepFamily FamilyOf(const Job& job, std::int64_t most) {
  std::vector<std::int64_t> counts(static_cast<std::size_t>(most));
  std::iota(counts.begin(), counts.end(), std::int64_t{1});
  std::vector<std::size_t> which(counts.size());
  std::iota(which.begin(), which.end(), std::size_t{0});
  return StepFamily(job, counts, std::move(which));
}

StepTime TimeOf(Job job, std::int64_t count, const Machine& machine) {
  constexpr StepRun kSteady;
  job.accumulation_steps = count;
  job.machine = machine;
  return EvaluateClosedForm(*LowerRuns(job, std::span(&kSteady, 1))).whole.time;
}

/// Every step, and no machine's prices left over from the one before.
void ExpectRight(const Job& job, std::int64_t most) {
  StepFamily family = FamilyOf(job, most);
  ASSERT_FALSE(family.steps().empty());
  for (const Machine& machine : Machines()) {
    family.Take(machine);
    const std::vector<Nanos> least = family.LeastSteps();
    const std::vector<StepTime> times = family.Price();
    for (std::size_t i = 0; i < times.size(); ++i) {
      const auto count = static_cast<std::int64_t>(family.steps()[i].count) + 1;
      EXPECT_TRUE(times[i] == TimeOf(job, count, machine)) << count;
      EXPECT_LE(least[i], times[i].step) << count;
      EXPECT_GE(least[i], (times[i].compute + times[i].recompute + times[i].optimizer) / 2) << count;
    }
  }
}

TEST(StepFamily, PricesEachStepAsItIsAndKnowsWhatItTakesAtLeast) {
  for (const char* strategy : {"ddp-last", "ddp-every", "fsdp1", "fsdp2-defer", "deepspeed-zero3", "megatron",
                               "nanotron", "jax-scan-stacked", "single-backward"}) {
    SCOPED_TRACE(strategy);
    ExpectRight(OracleJob(strategy, 4), 9);
  }
}

TEST(StepFamily, PricesPipelines) {
  Job job = OracleJob("megatron", 8);
  job.layout.pp = 4;
  for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::gpipe, Schedule::zb_h1}) {
    job.schedule = schedule;
    ExpectRight(job, 12);
  }
}

TEST(StepFamily, TakesOnlyTheCountsThatAreAskedFor) {
  const std::vector<std::int64_t> counts = {1, 2, 8, 16};
  StepFamily family(OracleJob("ddp-last", 4), counts, {0, 2});
  ASSERT_EQ(family.steps().size(), 2U);
  EXPECT_EQ(family.steps()[family.Longest()].count, 2U);
}

}  // namespace
}  // namespace tidemark::step_family_test
