// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/mark_overlap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/program/text.h"

namespace tidemark::mark_overlap_test {
namespace {

using ::testing::ElementsAre;

constexpr const char* kHead = R"(
role 0 "stage 0", 4 ranks
groups:
  dp  4 ranks, 4 per node
streams:
  host     host
  main     compute
  reduce   collective
  gather   collective
events:
  reduced
  gathered
program:
)";

std::string Kernel(const std::string& name, const std::string& stream = "main") {
  return "compute " + name + " pointwise(elements=1) on " + stream + "\n";
}
std::string Issue(const std::string& name, const std::string& stream) {
  return "all_reduce " + name + " 8 fp32 sum over dp on " + stream + "\n";
}
constexpr const char* kWaitForReduce = "record reduced on reduce\nwait reduced on main\n";
constexpr const char* kWaitForGather = "record gathered on gather\nwait gathered on main\n";

/// "k: 0 1" of a kernel, "c: 0" of a collective, by name, in the order of the program.
std::vector<std::string> Marks(const std::string& body) {
  Result<Program> program = ParseProgram(kHead + body);
  EXPECT_TRUE(program) << (program ? "" : program.error().Text());
  MarkOverlap(*program);
  std::vector<std::string> marks;
  for (const Node& node : program->nodes) {
    if (const auto* compute = std::get_if<Compute>(&node)) {
      marks.push_back(program->names[compute->name.index] + ":");
      for (const FlightId flight : compute->beside) {
        marks.back() += " " + std::to_string(flight.index);
      }
    } else if (const auto* collective = std::get_if<Collective>(&node)) {
      marks.push_back(program->names[collective->name.index] + ":");
      marks.back() += collective->flight.valid() ? " " + std::to_string(collective->flight.index) : "";
    }
  }
  return marks;
}

TEST(MarkOverlap, AFlightIsFromTheIssueToTheWait) {
  EXPECT_THAT(Marks(Kernel("before") + Issue("a", "reduce") + Kernel("beside") + kWaitForReduce + Kernel("behind")),
              ElementsAre("before:", "a: 0", "beside: 0", "behind:"));
}

TEST(MarkOverlap, ASecondCollectiveOfTheStreamJoinsTheFlight) {
  EXPECT_THAT(Marks(Issue("a", "reduce") + Kernel("k") + Issue("b", "reduce") + Kernel("l") + kWaitForReduce +
                    Issue("c", "reduce") + Kernel("m")),
              ElementsAre("a: 0", "k: 0", "b: 0", "l: 0", "c: 1", "m: 1"));
}

TEST(MarkOverlap, WhatNoKernelIsIssuedBehindIsExposed) {
  EXPECT_THAT(Marks(Issue("a", "reduce") + Kernel("k") + Issue("b", "reduce") + kWaitForReduce + Kernel("l")),
              ElementsAre("a: 0", "k: 0", "b:", "l:"));
}

TEST(MarkOverlap, AKernelIsBesideTheFlightsOfAllStreams) {
  EXPECT_THAT(Marks(Issue("a", "reduce") + Issue("b", "gather") + Kernel("k") + kWaitForGather + Kernel("l") +
                    kWaitForReduce + Kernel("m")),
              ElementsAre("a: 0", "b: 1", "k: 0 1", "l: 0", "m:"));
}

TEST(MarkOverlap, WhatNoKernelIsBesideHasNoNumber) {
  EXPECT_THAT(Marks(Issue("exposed", "reduce") + kWaitForReduce + Issue("hidden", "reduce") + Kernel("k")),
              ElementsAre("exposed:", "hidden: 0", "k: 0"));
}

TEST(MarkOverlap, TheHostsWaitEndsAFlightToo) {
  EXPECT_THAT(Marks(Issue("a", "reduce") + Issue("b", "gather") + "sync stream reduce\n" + Kernel("k") +
                    "sync device\n" + Kernel("l")),
              ElementsAre("a:", "b: 0", "k: 0", "l:"));
}

TEST(MarkOverlap, AnEventEndsWhatIsBeforeIt) {
  EXPECT_THAT(Marks(Issue("a", "reduce") + "record reduced on reduce\n" + Issue("b", "reduce") +
                    "wait reduced on main\n" + Kernel("k") + kWaitForReduce + Kernel("l")),
              ElementsAre("a: 0", "b: 0", "k: 0", "l:"));
}

TEST(MarkOverlap, WaitingForWhoHasWaitedIsEnough) {
  const std::string through_gather =
      "record reduced on reduce\nwait reduced on gather\n" + Kernel("k", "gather") + "record gathered on gather\n";
  EXPECT_THAT(Marks(Issue("a", "reduce") + through_gather + Kernel("l") + "wait gathered on main\n" + Kernel("m")),
              ElementsAre("a: 0", "k:", "l: 0", "m:"));
  EXPECT_THAT(Marks(Issue("a", "reduce") + Kernel("k", "gather") + Kernel("l")), ElementsAre("a: 0", "k:", "l: 0"))
      << "kernels of other streams than the compute stream are beside nothing";
  EXPECT_THAT(Marks(Issue("a", "reduce") + through_gather + "sync stream gather\n" + Kernel("m")),
              ElementsAre("a:", "k:", "m:"));
}

// The collective of each iteration is waited for in the next one, the first one's was issued before the loop, the last
// one's flies on behind it.
TEST(MarkOverlap, OneFlightGoesRoundALoop) {
  EXPECT_THAT(Marks(Issue("first", "reduce") + "repeat i 0..3 x4 {\n" + Kernel("k") + kWaitForReduce + Kernel("l") +
                    Issue("next", "reduce") + "}\n" + Kernel("m")),
              ElementsAre("first: 0", "k: 0", "l:", "next: 0", "m: 0"));
}

TEST(MarkOverlap, WhatFliesAtTheEndOfABodyFliesAtItsStart) {
  EXPECT_THAT(Marks("repeat i 0..3 x4 {\n" + Kernel("k") + kWaitForReduce + Issue("a", "reduce") + "}\n" +
                    kWaitForReduce + Kernel("l")),
              ElementsAre("k: 0", "a: 0", "l:"));
}

TEST(MarkOverlap, WhatIsIssuedLastInABodyIsHeardInTheNextIteration) {
  EXPECT_THAT(Marks(Issue("first", "reduce") + "repeat i 0..3 x4 {\n" + Kernel("k") + kWaitForReduce +
                    Issue("next", "reduce") + "}\n" + kWaitForReduce + Kernel("m")),
              ElementsAre("first: 0", "k: 0", "next: 0", "m:"));
}

TEST(MarkOverlap, MarksAProgramAnewThatWasMarked) {
  Result<Program> program = ParseProgram(kHead + Issue("a", "reduce") + Kernel("k") + kWaitForReduce +
                                         Issue("b", "reduce") + kWaitForReduce + Kernel("l"));
  ASSERT_TRUE(program.ok());
  MarkOverlap(*program);
  const std::string once = Print(*program);
  MarkOverlap(*program);
  EXPECT_EQ(Print(*program), once);
}

TEST(MarkOverlap, ALoopIsBesideWhatFliesOverIt) {
  EXPECT_THAT(Marks(Issue("a", "gather") + "repeat i 0..3 x4 {\nrepeat j 0..1 x2 {\n" + Kernel("k") + "}\n" +
                    Issue("b", "reduce") + Kernel("l") + kWaitForReduce + "}\n" + kWaitForGather + Kernel("m")),
              ElementsAre("a: 0", "k: 0", "b: 1", "l: 0 1", "m:"));
}

}  // namespace
}  // namespace tidemark::mark_overlap_test
