// SPDX-License-Identifier: Apache-2.0
#include "profiler/comm/launcher.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace tidemark::launcher_test {
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

/// One torchrun on each of two nodes, started by srun: Slurm counts those, and not the ranks.
TEST(Launcher, torchrunIsFoundWithinATaskOfSlurm) {
  Environment task = {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}, {"PMIX_RANK", "1"},
                      {"RANK", "5"},         {"WORLD_SIZE", "8"},           {"LOCAL_WORLD_SIZE", "4"},
                      {"LOCAL_RANK", "1"},   {"MASTER_ADDR", "n0"},         {"MASTER_PORT", "29500"}};
  ExpectLauncher(task, Kind::srun, 1, 2);  // a script may have set torchrun's variables for another program
  task["TORCHELASTIC_RUN_ID"] = "none";    // which torchrun gives its processes
  ExpectLauncher(task, Kind::torchrun, 5, 8);
}

constexpr bool kOnGpus = true;

Launcher Started(Kind kind, std::int64_t rank, std::int64_t ranks) {
  return {.kind = kind, .rank = rank, .ranks = ranks, .local_ranks = ranks, .speaks_pmi = true};
}

TEST(Meeting, oneRankNeedsNobody) {
  for (const bool on_gpus : {false, true}) {
    EXPECT_EQ(*MeetingOf({}, 1, on_gpus), Meeting::alone);
    EXPECT_EQ(*MeetingOf(Started(Kind::torchrun, 0, 1), 1, on_gpus), Meeting::alone);
  }
}

TEST(Meeting, whereNobodyHasStartedRanksThisProcessDoes) {
  EXPECT_EQ(*MeetingOf({}, 2, !kOnGpus), Meeting::starts);
  EXPECT_EQ(*MeetingOf({}, 2, kOnGpus), Meeting::starts);
}

TEST(Meeting, mpirunAndSrunHaveMpiOnGpusAsWell) {
  for (const bool on_gpus : {false, true}) {
    EXPECT_EQ(*MeetingOf(Started(Kind::mpirun, 1, 2), 2, on_gpus), Meeting::mpi);
    EXPECT_EQ(*MeetingOf(Started(Kind::srun, 1, 2), 2, on_gpus), Meeting::mpi);
  }
}

TEST(Meeting, torchrunsProcessesAreRanksOnGpusOnly) {
  for (const std::int64_t rank : {0, 1}) {
    EXPECT_EQ(*MeetingOf(Started(Kind::torchrun, rank, 2), 2, kOnGpus), Meeting::nccl);
  }
  EXPECT_EQ(*MeetingOf(Started(Kind::torchrun, 0, 2), 2, !kOnGpus), Meeting::starts);
  EXPECT_EQ(*MeetingOf(Started(Kind::torchrun, 1, 2), 2, !kOnGpus), Meeting::none);
}

TEST(Meeting, torchrunOverSeveralMachinesBringsOnlyRanksOnGpusTogether) {
  Launcher launcher = Started(Kind::torchrun, 0, 4);
  launcher.local_ranks = 2;
  EXPECT_EQ(*MeetingOf(launcher, 4, kOnGpus), Meeting::nccl);
  EXPECT_EQ(MeetingOf(launcher, 4, !kOnGpus).error().code, ErrorCode::machine_cannot);
}

TEST(Meeting, isRefusedWhereProcessesAreNotTheRanks) {
  for (const Kind kind : {Kind::mpirun, Kind::srun, Kind::torchrun}) {
    EXPECT_EQ(MeetingOf(Started(kind, 0, 3), 2, kOnGpus).error().code, ErrorCode::bad_input);
  }
  Launcher shell = Started(Kind::srun, 0, 2);
  shell.speaks_pmi = false;
  EXPECT_EQ(MeetingOf(shell, 2, kOnGpus).error().code, ErrorCode::machine_cannot);
}

}  // namespace
}  // namespace tidemark::launcher_test
