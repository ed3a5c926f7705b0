// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "sim/lower/lower.h"
#include "tests/sim/oracle_job.h"

// Which ranks communicate, and how many of them share a node of 8. Ranks are numbered tensor parallel first, then
// context parallel, then data parallel, then by stage.

namespace tidemark::groups_test {
namespace {

Group GroupOf(const Job& job, const std::string& name) {
  const Result<StepProgram> step = Lower(job, StepKind::steady);
  EXPECT_TRUE(step.ok());
  const auto& groups = step->roles.front().groups;
  const auto found = std::find_if(groups.begin(), groups.end(), [&](const Group& group) { return group.name == name; });
  EXPECT_NE(found, groups.end()) << name;
  return *found;
}

Job Divided(std::int64_t dp, std::int64_t cp, std::int64_t tp, std::int64_t pp = 1) {
  Job job = OracleJob("megatron", 2 * pp);
  job.layout.dp = dp;
  job.layout.cp = cp;
  job.layout.tp = tp;
  job.layout.pp = pp;
  job.sequence_length = 96 * cp;
  return job;
}

TEST(Groups, RanksOfARingStandSideBySideAndGradientsAreSummedOverRingsToo) {
  const Job job = Divided(4, 2, 2);
  const Group ring = GroupOf(job, "cp"), gradients = GroupOf(job, "dp");
  EXPECT_EQ(ring.size, 2);
  EXPECT_EQ(ring.ranks_per_node, 2);  // ranks 0 and 2
  EXPECT_EQ(gradients.size, 8);
  EXPECT_EQ(gradients.ranks_per_node, 4);  // ranks 0, 2, 4 and 6 of 0 to 14
}

TEST(Groups, ThoseThatLieAcrossANodesBorderAreOnTwo) {
  EXPECT_EQ(GroupOf(Divided(1, 3, 2), "cp").ranks_per_node, 3) << "ranks 0, 2 and 4";
  EXPECT_EQ(GroupOf(Divided(4, 3, 2), "cp").ranks_per_node, 2) << "ranks 6, 8 and 10 as well";
  EXPECT_EQ(GroupOf(Divided(4, 4, 2), "cp").ranks_per_node, 4) << "one ring a node";
  EXPECT_EQ(GroupOf(Divided(1, 16, 1), "cp").ranks_per_node, 8);
  EXPECT_EQ(GroupOf(Divided(1, 4, 8), "cp").ranks_per_node, 1);
  EXPECT_EQ(GroupOf(Divided(3, 1, 2), "dp").ranks_per_node, 3);
  EXPECT_EQ(GroupOf(Divided(3, 1, 2, 2), "dp").ranks_per_node, 2) << "the second stage's 6, 8 and 10";
}

}  // namespace
}  // namespace tidemark::groups_test
