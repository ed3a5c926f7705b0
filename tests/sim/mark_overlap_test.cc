// SPDX-License-Identifier: Apache-2.0
#include "sim/lower/mark_overlap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "sim/program/text.h"
#include "tests/sim/small_role.h"

namespace tidemark::mark_overlap_test {
namespace {

using ::testing::ElementsAre;

std::string Kernel(const std::string& name, const std::string& stream = "main") {
  return "compute " + name + " pointwise(elements=1) on " + stream + "\n";
}
std::string Issue(const std::string& name, const std::string& stream) {
  return "all_reduce " + name + " 8 fp32 sum over dp on " + stream + "\n";
}
constexpr const char* kWaitForSide = "record e on side\nwait e on main\n";
constexpr const char* kWaitForThird = "record f on third\nwait f on main\n";

/// "k: 0 1" of a kernel, "c: 0" of a collective, by name, in the order of the program.
std::vector<std::string> Marks(const std::string& body) {
  Program program = SmallRole(body);
  MarkOverlap(program);
  std::vector<std::string> marks;
  for (const Node& node : program.nodes) {
    if (const auto* compute = std::get_if<Compute>(&node)) {
      marks.push_back(program.names[compute->name.index] + ":");
      for (const FlightId flight : program.FlightsBeside(*compute)) {
        marks.back() += " " + std::to_string(flight.index);
      }
    } else if (const auto* collective = std::get_if<Collective>(&node)) {
      marks.push_back(program.names[collective->name.index] + ":");
      marks.back() += collective->flight.valid() ? " " + std::to_string(collective->flight.index) : "";
    }
  }
  return marks;
}

TEST(MarkOverlap, AFlightIsFromTheIssueToTheWait) {
  EXPECT_THAT(Marks(Kernel("before") + Issue("a", "side") + Kernel("beside") + kWaitForSide + Kernel("behind")),
              ElementsAre("before:", "a: 0", "beside: 0", "behind:"));
}

TEST(MarkOverlap, ASecondCollectiveOfTheStreamJoinsTheFlight) {
  EXPECT_THAT(Marks(Issue("a", "side") + Kernel("k") + Issue("b", "side") + Kernel("l") + kWaitForSide +
                    Issue("c", "side") + Kernel("m")),
              ElementsAre("a: 0", "k: 0", "b: 0", "l: 0", "c: 1", "m: 1"));
}

TEST(MarkOverlap, WhatNoKernelIsIssuedBehindIsExposed) {
  EXPECT_THAT(Marks(Issue("a", "side") + Kernel("k") + Issue("b", "side") + kWaitForSide + Kernel("l")),
              ElementsAre("a: 0", "k: 0", "b:", "l:"));
}

TEST(MarkOverlap, AKernelIsBesideTheFlightsOfAllStreams) {
  EXPECT_THAT(Marks(Issue("a", "side") + Issue("b", "third") + Kernel("k") + kWaitForThird + Kernel("l") +
                    kWaitForSide + Kernel("m")),
              ElementsAre("a: 0", "b: 1", "k: 0 1", "l: 0", "m:"));
}

TEST(MarkOverlap, WhatNoKernelIsBesideHasNoNumber) {
  EXPECT_THAT(Marks(Issue("exposed", "side") + kWaitForSide + Issue("hidden", "side") + Kernel("k")),
              ElementsAre("exposed:", "hidden: 0", "k: 0"));
}

TEST(MarkOverlap, TheHostsWaitEndsAFlightToo) {
  EXPECT_THAT(Marks(Issue("a", "side") + Issue("b", "third") + "sync stream side\n" + Kernel("k") + "sync device\n" +
                    Kernel("l")),
              ElementsAre("a:", "b: 0", "k: 0", "l:"));
}

TEST(MarkOverlap, AnEventEndsWhatIsBeforeIt) {
  EXPECT_THAT(Marks(Issue("a", "side") + "record e on side\n" + Issue("b", "side") + "wait e on main\n" + Kernel("k") +
                    kWaitForSide + Kernel("l")),
              ElementsAre("a: 0", "b: 0", "k: 0", "l:"));
}

TEST(MarkOverlap, WaitingForWhoHasWaitedIsEnough) {
  const std::string through_third =
      "record e on side\nwait e on third\n" + Kernel("k", "third") + "record f on third\n";
  EXPECT_THAT(Marks(Issue("a", "side") + through_third + Kernel("l") + "wait f on main\n" + Kernel("m")),
              ElementsAre("a: 0", "k:", "l: 0", "m:"));
  EXPECT_THAT(Marks(Issue("a", "side") + Kernel("k", "third") + Kernel("l")), ElementsAre("a: 0", "k:", "l: 0"))
      << "kernels of other streams than the compute stream are beside nothing";
  EXPECT_THAT(Marks(Issue("a", "side") + through_third + "sync stream third\n" + Kernel("m")),
              ElementsAre("a:", "k:", "m:"));
}

// The collective of each iteration is waited for in the next one, the first one's was issued before the loop, the last
// one's flies on behind it.
TEST(MarkOverlap, OneFlightGoesRoundALoop) {
  EXPECT_THAT(Marks(Issue("first", "side") + "repeat i 0..3 x4 {\n" + Kernel("k") + kWaitForSide + Kernel("l") +
                    Issue("next", "side") + "}\n" + Kernel("m")),
              ElementsAre("first: 0", "k: 0", "l:", "next: 0", "m: 0"));
}

TEST(MarkOverlap, WhatFliesAtTheEndOfABodyFliesAtItsStart) {
  EXPECT_THAT(Marks("repeat i 0..3 x4 {\n" + Kernel("k") + kWaitForSide + Issue("a", "side") + "}\n" + kWaitForSide +
                    Kernel("l")),
              ElementsAre("k: 0", "a: 0", "l:"));
}

TEST(MarkOverlap, WhatIsIssuedLastInABodyIsHeardInTheNextIteration) {
  EXPECT_THAT(Marks(Issue("first", "side") + "repeat i 0..3 x4 {\n" + Kernel("k") + kWaitForSide +
                    Issue("next", "side") + "}\n" + kWaitForSide + Kernel("m")),
              ElementsAre("first: 0", "k: 0", "next: 0", "m:"));
}

TEST(MarkOverlap, AKernelIsBesideWhatCameBeforeTheLoopAndWhatComesRoundIt) {
  EXPECT_THAT(Marks(Issue("a", "third") + "repeat i 0..3 x4 {\n" + Kernel("k") + Issue("b", "side") + "}\n" +
                    kWaitForSide + kWaitForThird + Kernel("l")),
              ElementsAre("a: 0", "k: 0 1", "b: 1", "l:"));
}

TEST(MarkOverlap, MarksAProgramAnewThatWasMarked) {
  Program program =
      SmallRole(Issue("a", "side") + Kernel("k") + kWaitForSide + Issue("b", "side") + kWaitForSide + Kernel("l"));
  MarkOverlap(program);
  const std::string once = Print(program);
  MarkOverlap(program);
  EXPECT_EQ(Print(program), once);
}

TEST(MarkOverlap, ALoopIsBesideWhatFliesOverIt) {
  EXPECT_THAT(Marks(Issue("a", "third") + "repeat i 0..3 x4 {\nrepeat j 0..1 x2 {\n" + Kernel("k") + "}\n" +
                    Issue("b", "side") + Kernel("l") + kWaitForSide + "}\n" + kWaitForThird + Kernel("m")),
              ElementsAre("a: 0", "k: 0", "b: 1", "l: 0 1", "m:"));
}

}  // namespace
}  // namespace tidemark::mark_overlap_test
