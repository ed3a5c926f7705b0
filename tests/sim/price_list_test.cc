// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/price_list.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <string>
#include <vector>

#include "sim/cost/cost.h"
#include "sim/lower/lower.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::price_list_test {
namespace {

StepProgram Lowered(const Job& job) {
  Result<StepProgram> program = Lower(job, StepKind::steady);
  EXPECT_TRUE(program) << (program ? "" : program.error().Text());
  return program ? std::move(*program) : StepProgram{};
}

/// One that slows kernels beside collectives, another with collectives that outlast them, and one whose streams take
/// turns.
std::vector<Machine> Machines() {
  std::vector<Machine> machines(4, TestMachine());
  machines[1].overlap_slowdown = machines[3].overlap_slowdown = 1.5;
  machines[2].overlap = false;
  machines[2].devices_per_node = 2;
  machines[3].inter_node.bandwidth = machines[3].intra_node.bandwidth = BytesPerSec(1e9);
  return machines;
}

std::size_t ExpectSamePrices(const StepProgram& step) {
  const PriceList list(step);
  std::size_t distinct = 0;
  for (const Machine& machine : Machines()) {
    const std::vector<Nanos> prices = list.Price(step, machine);
    const std::vector<Costs> expected = PriceAll(step, machine);
    distinct = prices.size();
    for (std::size_t role = 0; role < expected.size(); ++role) {
      for (std::size_t node = 0; node < expected[role].device.size(); ++node) {
        EXPECT_EQ(prices[list.Which(role, node)], expected[role].device[node]) << "role " << role << ", node " << node;
      }
    }
  }
  return distinct;
}

TEST(PriceList, SaysOfEveryNodeWhatItCosts) {
  for (const Strategy& strategy : AllStrategies()) {
    if (strategy.defaults.name == "hsdp") {
      continue;  // has no such job without replicas
    }
    SCOPED_TRACE(strategy.defaults.name);
    ExpectSamePrices(Lowered(OracleJob(strategy.defaults.name, 6)));
  }
}

TEST(PriceList, PricesAStagesKernelsOnceForAllStages) {
  Job job = OracleJob("ddp-last", 8);
  job.layout.pp = 4;
  job.schedule = Schedule::one_f_one_b;
  const StepProgram step = Lowered(job);
  std::size_t nodes = 0;
  for (const Program& role : step.roles) {
    nodes += role.nodes.size();
  }
  EXPECT_LT(ExpectSamePrices(step), nodes / 8);
}

}  // namespace
}  // namespace tidemark::price_list_test
