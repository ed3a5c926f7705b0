// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/launcher.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace tidemark {
namespace {

using Environment = std::map<std::string, std::string>;
using Kind = Launcher::Kind;

Launcher In(const Environment& environment) {
  return FindLauncher([&](const char* variable) {
    const auto found = environment.find(variable);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

void ExpectLauncher(const Environment& environment, Kind kind, std::int64_t rank, std::int64_t ranks) {
  const Launcher launcher = In(environment);
  EXPECT_EQ(launcher.kind, kind);
  EXPECT_EQ(launcher.rank, rank);
  EXPECT_EQ(launcher.ranks, ranks);
}

TEST(Launcher, nobodyHasStartedAPlainProcess) {
  ExpectLauncher({}, Kind::none, 0, 0);
  ExpectLauncher({{"RANK", "1"}, {"WORLD_SIZE", "4"}}, Kind::none, 0,
                 0);  // somebody's variables, no address to meet at
}

TEST(Launcher, mpirunIsFoundAlsoWhereASchedulerStandsBehindIt) {
  ExpectLauncher({{"OMPI_COMM_WORLD_RANK", "2"},
                  {"OMPI_COMM_WORLD_SIZE", "3"},
                  {"SLURM_PROCID", "0"},
                  {"SLURM_STEP_NUM_TASKS", "1"}},
                 Kind::mpirun, 2, 3);
}

TEST(Launcher, ofSrunTheStepCountsAndNotTheAllocation) {
  ExpectLauncher({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}, {"SLURM_NTASKS", "16"}, {"PMIX_RANK", "3"}},
                 Kind::srun, 3, 4);
  ExpectLauncher({{"SLURM_PROCID", "3"}, {"SLURM_NTASKS", "4"}, {"PMIX_RANK", "3"}}, Kind::srun, 3, 4);
}

TEST(Launcher, srunWithoutPmiLeavesRanksThatCannotFindEachOther) {
  EXPECT_FALSE(In({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}}).speaks_pmi);
  EXPECT_TRUE(In({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"PMI_RANK", "0"}}).speaks_pmi);
}

TEST(Launcher, aBatchScriptOrAShellOfSlurmHasStartedNoRanks) {
  ExpectLauncher({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}, Kind::none, 0, 0);
  ExpectLauncher({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "4"}}, Kind::none, 0, 0);
}

TEST(Launcher, torchrunIsFoundByItsFourVariables) {
  const Environment node = {{"RANK", "5"},
                            {"WORLD_SIZE", "8"},
                            {"LOCAL_WORLD_SIZE", "4"},
                            {"MASTER_ADDR", "node0"},
                            {"MASTER_PORT", "29500"}};
  ExpectLauncher(node, Kind::torchrun, 5, 8);
  EXPECT_EQ(In(node).local_ranks, 4);
}

TEST(Launcher, aRankKnowsItsPlaceOnItsMachine) {
  EXPECT_EQ(In({{"OMPI_COMM_WORLD_RANK", "6"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}})
                .local_rank,
            2);
  EXPECT_EQ(In({{"SLURM_PROCID", "6"}, {"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_LOCALID", "3"}}).local_rank, 3);
  EXPECT_EQ(
      In({{"RANK", "6"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29500"}})
          .local_rank,
      1);
}

}  // namespace
}  // namespace tidemark
