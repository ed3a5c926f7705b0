// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/cost/overlap.h"
#include "sim/engine/closed_form.h"
#include "sim/lower/lower.h"
#include "sim/program/walk.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::overlap_test {
namespace {

/// What all collectives of a step take, one by one.
Nanos CollectivesOf(const Program& program, const Costs& costs) {
  Nanos sum;
  ForEachLeaf(program, [&](std::size_t at, std::span<const std::int64_t>) {
    sum += std::holds_alternative<Collective>(program.nodes[at]) ? costs.device[at] : Nanos();
    return true;
  });
  return sum;
}

// A machine whose ranks have one thread hides no collective; one with streams hides some of them.
TEST(Overlap, ExposesEveryCollectiveWhereStreamsTakeTurns) {
  for (const std::string strategy : {"ddp-every", "fsdp2-scatter-each", "megatron"}) {
    Job job = OracleJob(strategy, 4);
    const Result<StepProgram> program = Lower(job, StepKind::steady);
    ASSERT_TRUE(program.ok());
    for (const bool overlap : {true, false}) {
      job.machine.overlap = overlap;
      const std::vector<Costs> costs = PriceAll(*program, job.machine);
      const Evaluation evaluation = EvaluateClosedForm(*program, costs);
      const Nanos all = CollectivesOf(program->roles.front(), costs.front());
      EXPECT_GT(all, Nanos());
      if (overlap) {
        EXPECT_LT(evaluation.time.exposed_communication, all) << strategy;
      } else {
        EXPECT_EQ(evaluation.time.exposed_communication, all) << strategy;
      }
    }
  }
}

// Kernels of 3,000 and 6,000 ns, s = 1.5. While collectives of C run, kernels do C / 1.5 of their work: they take C / 3
// longer, until C is half as long again as they are.
constexpr FlightId kOne{0}, kOther{1};

Machine Stretching(double slowdown) {
  Machine machine = TestMachine();
  machine.overlap_slowdown = slowdown;
  return machine;
}

TEST(Overlap, StretchesKernelsForAsLongAsCollectivesTake) {
  const std::vector<FlightId> beside = {kOne};
  Overlap overlap;
  overlap.AddKernel(beside, Nanos(3000));
  overlap.AddKernel(beside, Nanos(6000));
  const auto both = [&](double slowdown) {
    return TimeBeside(overlap.CollectivesOverKernels(beside), 9000e-9, Stretching(slowdown));
  };
  EXPECT_EQ(both(1.5), Nanos(9000));
  overlap.AddCollective(kOne, Nanos(1000));
  overlap.AddCollective(kOne, Nanos(1700));
  EXPECT_EQ(both(1.5), Nanos(9000 + 900));
  EXPECT_EQ(both(1), Nanos(9000));
  overlap.AddCollective(kOne, Nanos(10'800));  // 13,500 ns: all of 9,000 * 1.5
  EXPECT_EQ(both(1.5), Nanos(13'500));
  overlap.AddCollective(kOne, Nanos(1'000'000));
  EXPECT_EQ(both(1.5), Nanos(13'500));
}

TEST(Overlap, AddsUpOverFlights) {
  const std::vector<FlightId> one = {kOne}, both = {kOne, kOther};
  Overlap overlap;
  overlap.AddKernel(one, Nanos(1000));
  overlap.AddKernel(both, Nanos(2000));
  overlap.AddCollective(kOne, Nanos(600));    // a fifth of 3,000
  overlap.AddCollective(kOther, Nanos(200));  // a tenth of 2,000
  EXPECT_DOUBLE_EQ(overlap.CollectivesOverKernels(one), 0.2);
  EXPECT_DOUBLE_EQ(overlap.CollectivesOverKernels(both), 0.2 + 0.1);
}

TEST(Overlap, OfNTimesAsManyIterationsIsTheSame) {
  const std::vector<FlightId> beside = {kOne};
  constexpr std::int64_t kCollective = 3'002'399'751'580'331, kKernel = 9'007'199'254'740'881;  // beyond 53 bits soon
  Overlap overlap, often;
  overlap.AddCollective(kOne, Nanos(kCollective));
  overlap.AddKernel(beside, Nanos(kKernel));
  for (int i = 0; i < 97; ++i) {
    often.AddCollective(kOne, Nanos(kCollective));
    often.AddKernel(beside, Nanos(kKernel));
  }
  EXPECT_EQ(often.CollectivesOverKernels(beside), overlap.CollectivesOverKernels(beside));
}

/// What one rank's kernels take in all.
Nanos KernelsOf(const StepProgram& step, const Machine& machine) {
  const StepTime time = EvaluateClosedForm(step, PriceAll(step, machine)).time;
  return time.compute + time.recompute + time.optimizer;
}

// Buckets of the last backward pass are reduced in a small part of it, the first layers' behind it: a slow-down of 1.5
// costs a third of what the others take, not half of the backward pass. Each of so many kernels is rounded by half a
// nanosecond at most.
TEST(Overlap, OfDdpCostsAThirdOfItsHiddenCollectives) {
  const Job job = OracleJob("ddp-last", 4);
  const Result<StepProgram> step = Lower(job, StepKind::steady);
  ASSERT_TRUE(step.ok());
  const Program& program = step->roles.front();
  const std::vector<Costs> costs = PriceAll(*step, Stretching(1));
  Nanos hidden, unheard;  // collectives that a kernel of the backward pass was issued behind, and not yet
  std::int64_t kernels = 0;
  bool backward = false;
  ForEachLeaf(program, [&](std::size_t at, std::span<const std::int64_t>) {
    const Node& node = program.nodes[at];
    if (const auto* begin = std::get_if<Begin>(&node)) {
      backward = begin->phase == Phase::backward;
    } else if (std::holds_alternative<Collective>(node) && backward) {
      unheard += costs.front().device[at];
    } else if (std::holds_alternative<Compute>(node) && backward) {
      ++kernels;
      hidden += std::exchange(unheard, Nanos());
    }
    return true;
  });
  ASSERT_GT(hidden, Nanos());
  ASSERT_GT(unheard, Nanos());
  const Nanos longer = KernelsOf(*step, Stretching(1.5)) - KernelsOf(*step, Stretching(1));
  EXPECT_NEAR(static_cast<double>(longer.count()), static_cast<double>(hidden.count()) / 3,
              static_cast<double>(kernels));
}

}  // namespace
}  // namespace tidemark::overlap_test
