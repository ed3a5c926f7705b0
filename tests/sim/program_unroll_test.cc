// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/program/text.h"
#include "sim/program/walk.h"

namespace tidemark::program_unroll_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// The leaves of `lines` written out, one string each. There is a family x[9][9] and a stream main.
std::vector<std::string> Unrolled(std::string_view lines) {
  const std::string header =
      "role 0 only, 1 ranks\nstreams:\n  host host\n  main compute\n"
      "buffers:\n  x[9][9] workspace 8 u8 born on main\nprogram:\n";
  const Result<Program> program = ParseProgram(header + std::string(lines));
  EXPECT_TRUE(program.ok()) << program.error().Text();
  std::vector<std::string> leaves;
  const Program unrolled = Unroll(*program);
  for (const Node& node : unrolled.nodes) {
    leaves.push_back(Print(unrolled, node));
  }
  return leaves;
}

TEST(ProgramUnroll, LeavesWithoutLoopsStayAsTheyAre) {
  EXPECT_THAT(Unrolled("alloc x[1][2]\nsync device\nfree x[1][2]"),
              ElementsAre("alloc x[1][2]", "sync device", "free x[1][2]"));
}

TEST(ProgramUnroll, ALoopCountsDownWhenItsRangeDoes) {
  EXPECT_THAT(Unrolled("repeat i 2..0 x3 {\nalloc x[i][0]\n}"),
              ElementsAre("alloc x[2][0]", "alloc x[1][0]", "alloc x[0][0]"));
}

TEST(ProgramUnroll, NestedLoopsRunTheInnerOneFirst) {
  EXPECT_THAT(Unrolled("repeat i 0..1 x2 {\nrepeat j 5..6 x2 {\nalloc x[i][j-1]\n}\nfree x[i][i+3]\n}"),
              ElementsAre("alloc x[0][4]", "alloc x[0][5]", "free x[0][3]",    // i = 0
                          "alloc x[1][4]", "alloc x[1][5]", "free x[1][4]"));  // i = 1
}

TEST(ProgramUnroll, AModulusIsAppliedAfterTheOffsetAndNeverGivesANegativeIndex) {
  // (i - 1) mod 3 for i = 0, 1, 2, 3 is 2, 0, 1, 2.
  EXPECT_THAT(Unrolled("repeat i 0..3 x4 {\nalloc x[(i-1)%3][7%4]\n}"),
              ElementsAre("alloc x[2][3]", "alloc x[0][3]", "alloc x[1][3]", "alloc x[2][3]"));
}

TEST(ProgramUnroll, MicrobatchesOfPhasesAreWrittenOutAndTheWholeStepStays) {
  EXPECT_THAT(Unrolled("repeat m 0..1 x2 {\nbegin forward microbatch m\nend forward\n}\nbegin optimizer"),
              ElementsAre("begin forward microbatch 0", "end forward", "begin forward microbatch 1", "end forward",
                          "begin optimizer"));
}

TEST(ProgramUnroll, ReadsAndWritesOfAnOperationAreWrittenOut) {
  EXPECT_THAT(Unrolled("repeat i 3..3 x1 {\ncompute c rope() on main reads x[i][0], x[0][i] writes x[i][i]\n}"),
              ElementsAre("compute c rope() on main reads x[3][0], x[0][3] writes x[3][3]"));
}

TEST(ProgramUnroll, EmptyBodiesLeaveNothing) { EXPECT_THAT(Unrolled("repeat i 0..3 x4 {\n}"), IsEmpty()); }

TEST(ProgramUnroll, AWalkStopsWhenItIsToldTo) {
  const Result<Program> program =
      ParseProgram("role 0 only, 1 ranks\nprogram:\nrepeat i 0..999 x1000 {\nsync device\n}");
  ASSERT_TRUE(program.ok());
  int visited = 0;
  ForEachLeaf(*program, [&](std::size_t, std::span<const std::int64_t>) { return ++visited < 5; });
  EXPECT_EQ(visited, 5);
}

}  // namespace
}  // namespace tidemark::program_unroll_test
