// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "sim/cost/cost.h"
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

}  // namespace
}  // namespace tidemark::overlap_test
