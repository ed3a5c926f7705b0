// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "sim/program/verify.h"
#include "tests/sim/small_role.h"

namespace tidemark::program_verify_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// The rules are those of Finding::Rule in verify.h. Each test says one program and what is wrong with it, by hand.

// Lifetimes.

TEST(Verify, ABufferUsedBetweenItsAllocAndItsFreeIsFine) {
  EXPECT_THAT(Broken("alloc a\ncompute w rope() on main writes a\ncompute r rope() on main reads a\nfree a"),
              IsEmpty());
}

TEST(Verify, AReadBeforeTheAllocIsFound) {
  EXPECT_THAT(Broken("compute r rope() on main reads a\nalloc a\nfree a"), ElementsAre("used_before_alloc"));
}

TEST(Verify, AWriteAfterTheFreeIsFound) {
  EXPECT_THAT(Broken("alloc a\nfree a\ncompute w rope() on main writes a"), ElementsAre("used_before_alloc"));
}

TEST(Verify, EveryKindOfLeafCountsAsAUse) {
  EXPECT_THAT(Broken("scale x a by 1/2 on main"), ElementsAre("used_before_alloc"));
  EXPECT_THAT(Broken("copy x 8 bytes on main reads a"), ElementsAre("used_before_alloc"));
  EXPECT_THAT(Broken("all_reduce x 8 u8 sum over dp on main writes a"), ElementsAre("used_before_alloc"));
  EXPECT_THAT(Broken("send x a into right on main", "alloc a\nrecv x a from right on main\nfree a"),
              ElementsAre("used_before_alloc"));
  EXPECT_THAT(Broken("send x weight into right on main", "recv x a from right on main"),
              ElementsAre("used_before_alloc"));
}

TEST(Verify, AReadOfWhatNobodyWroteIsFound) {
  EXPECT_THAT(Broken("alloc a\ncompute r rope() on main reads a\nfree a"), ElementsAre("read_before_write"));
  EXPECT_THAT(Broken("alloc a\ncompute w rope() on main writes a\ncompute r rope() on main reads a\nfree a"),
              IsEmpty());
}

TEST(Verify, ASecondFreeIsFound) { EXPECT_THAT(Broken("alloc a\nfree a\nfree a"), ElementsAre("used_before_alloc")); }

TEST(Verify, ResidentBuffersAreThereFromTheStart) {
  EXPECT_THAT(Broken("compute r rope() on main reads weight"), IsEmpty());
  EXPECT_THAT(Broken("alloc weight"), ElementsAre("allocated_twice"));
}

TEST(Verify, AResidentBufferMayBeReplacedWithinTheStep) { EXPECT_THAT(Broken("free weight\nalloc weight"), IsEmpty()); }

TEST(Verify, ASecondAllocOfALiveBufferIsFound) {
  EXPECT_THAT(Broken("alloc b[1]\nalloc b[1]\nfree b[1]"), ElementsAre("allocated_twice"));
  EXPECT_THAT(Broken("alloc b[1]\nalloc b[2]\nfree b[1]\nfree b[2]"), IsEmpty());
}

TEST(Verify, TwoIterationsThatShareABufferByModulusAreFoundWhenTheirLivesOverlap) {
  // Iteration i allocates i and frees i - 1: two are alive at once, so modulus 2 is enough and modulus 1 is not.
  EXPECT_THAT(Broken("alloc b[0]\nrepeat i 1..6 x6 {\nalloc b[i%2]\nfree b[(i-1)%2]\n}\nfree b[0]"), IsEmpty());
  EXPECT_THAT(Broken("alloc b[0]\nrepeat i 1..6 x6 {\nalloc b[i%1]\nfree b[(i-1)%1]\n}"),
              ElementsAre("allocated_twice"));  // i = 1 takes b[0] a second time
}

TEST(Verify, ABufferLeftBehindIsFoundOnceForItsFamily) {
  EXPECT_THAT(Broken("repeat i 0..3 x4 {\nalloc b[i]\n}"), ElementsAre("never_freed"));
  EXPECT_THAT(FirstMessage("alloc b[3]"), HasSubstr("b[3] is still allocated when the step ends"));
}

TEST(Verify, AKeptBufferMustBeThereAtTheEnd) {
  EXPECT_THAT(Broken("free result"), ElementsAre("not_kept"));
  EXPECT_THAT(Broken("free weight"), ElementsAre("not_kept"));
}

TEST(Verify, LoopsThatCountDownAndNestAreFollowed) {
  EXPECT_THAT(Broken("repeat m 0..1 x2 {\nrepeat k 0..2 x3 {\nalloc grid[m][k]\n}\n}\n"
                     "repeat k 2..0 x3 {\nrepeat m 1..0 x2 {\nfree grid[m][k]\n}\n}"),
              IsEmpty());
  // The last one, k = 0 of m = 0, is forgotten.
  EXPECT_THAT(FirstMessage("repeat m 0..1 x2 {\nrepeat k 0..2 x3 {\nalloc grid[m][k]\n}\n}\n"
                           "repeat m 1..0 x2 {\nrepeat k 2..1 x2 {\nfree grid[m][k]\n}\n}\nfree grid[1][0]"),
              HasSubstr("grid[0][0] is still allocated"));
}

// Indices.

TEST(Verify, AnIndexOutsideItsFamilyIsFoundWithTheLoopValuesThatLeadThere) {
  EXPECT_THAT(Broken("repeat i 0..3 x4 {\nalloc b[i+1]\nfree b[i+1]\n}"),
              ElementsAre("index_out_of_range", "index_out_of_range"));
  EXPECT_THAT(FirstMessage("repeat i 0..3 x4 {\nalloc b[i+1]\nfree b[i+1]\n}"),
              AllOf(HasSubstr("stage 0"), HasSubstr("alloc b[i+1]"), HasSubstr("i=3"), HasSubstr("b[4] is outside")));
  EXPECT_THAT(Broken("repeat i 0..3 x4 {\nalloc b[(i+1)%4]\nfree b[(i+1)%4]\n}"), IsEmpty());
}

TEST(Verify, ANegativeIndexIsFound) { EXPECT_THAT(Broken("alloc b[-1]"), ElementsAre("index_out_of_range")); }

TEST(Verify, TheSecondIndexHasItsOwnBound) {
  // grid has 2 x 3 buffers: [1][2] is the last; [0][3] must not pass for [1][0].
  EXPECT_THAT(Broken("alloc grid[1][2]\nfree grid[1][2]"), IsEmpty());
  EXPECT_THAT(Broken("alloc grid[0][3]"), ElementsAre("index_out_of_range"));
}

// Phases.

TEST(Verify, PhasesMustNest) {
  EXPECT_THAT(Broken("begin backward microbatch 0\nbegin reduce\nend reduce\nend backward"), IsEmpty());
  EXPECT_THAT(Broken("begin forward microbatch 0\nend backward\nend forward"), ElementsAre("unbalanced_phase"));
  EXPECT_THAT(Broken("end forward"), ElementsAre("unbalanced_phase"));
  EXPECT_THAT(Broken("begin forward microbatch 0"), ElementsAre("unbalanced_phase"));
}

// Between roles.

TEST(Verify, EverySendNeedsItsRecv) {
  const std::string send = "send x weight into right on main\n";
  const std::string recv = "alloc a\nrecv x a from right on main\nfree a\n";
  EXPECT_THAT(Broken(send + send, recv + recv), IsEmpty());
  EXPECT_THAT(Broken(send + send, recv), ElementsAre("send_without_recv"));
  EXPECT_THAT(Broken("", recv), ElementsAre("send_without_recv"));
}

TEST(Verify, MessagesKeepTheirSize) {
  // weight has 8 bytes, b[0] 16.
  EXPECT_THAT(Broken("send x weight into right on main", "alloc b[0]\nrecv x b[0] from right on main\nfree b[0]"),
              ElementsAre("send_without_recv"));
}

TEST(Verify, ARoleThatSendsIntoTheWrongEndIsFound) {
  EXPECT_THAT(Broken("send x weight into left on main", "alloc a\nrecv x a from left on main\nfree a"),
              ElementsAre("send_without_recv", "send_without_recv"));  // stage 0 misuses it, and stage 1 misuses it
}

TEST(Verify, StagesMustSeeTheSameCollectivesOfAGroupThatSpansThem) {
  const std::string norm = "all_reduce norm 1 fp32 sum over pp on main\n";
  const std::string scale = "all_reduce found_inf 1 fp32 sum over pp on main\n";
  const std::string loss = "broadcast loss 1 fp32 over pp on main\n";
  EXPECT_THAT(Broken(norm + loss, norm + loss), IsEmpty());
  EXPECT_THAT(Broken(norm + loss, scale + loss), IsEmpty());  // names are for people
  EXPECT_THAT(Broken(norm + loss, loss + norm), ElementsAre("collective_order"));
  EXPECT_THAT(Broken(norm + loss, norm), ElementsAre("collective_order"));
  EXPECT_THAT(Broken("all_reduce n 1 fp32 sum over pp on main", "all_reduce n 2 fp32 sum over pp on main"),
              ElementsAre("collective_order"));
}

TEST(Verify, StagesMayDifferInGroupsOfTheirOwn) {
  EXPECT_THAT(Broken("all_reduce g 100 bf16 avg over dp on side", "all_reduce g 200 bf16 avg over dp on side"),
              IsEmpty());
}

// References: only programs that were not read from text can break these.

std::vector<std::string> Messages(const Program& program) {
  std::vector<std::string> messages;
  for (const Finding& finding : Verify({{program}})) {
    EXPECT_EQ(finding.rule, Finding::Rule::bad_reference) << finding.message;
    messages.push_back(finding.message);
  }
  return messages;
}

TEST(Verify, IdsThatLeadNowhereAreNamedAndNotFollowed) {
  Program program = SmallRole(kResult);
  program.nodes.push_back(Alloc{{BufferId{99}, {}}});
  program.nodes.push_back(Record{EventId{9}, StreamId{}});
  program.nodes.push_back(Send{NameId{5}, ChannelId{5}, StreamId{0}, {BufferId{0}, {}}});
  EXPECT_THAT(Messages(program),
              ElementsAre(HasSubstr("no buffer 99"), HasSubstr("no event 9"), HasSubstr("no stream 4294967295"),
                          HasSubstr("no name 5"), HasSubstr("no channel 5")));
}

/// A bucket of 16 bytes, with `slots` as they stand in its table.
Program Bucketed(const std::string& slots, const std::string& lines = "") {
  Result<Program> program = ParseProgram(
      "role 0 \"stage 0\", 1 ranks\nstreams:\n  host host\n  main compute\nbuffers:\n"
      "  bucket bucket 16 u8 born on main, kept\n  family[2] bucket 16 u8 born on main\n" +
      slots + "program:\nalloc bucket\n" + lines);
  EXPECT_TRUE(program.ok()) << program.error().Text();
  return program ? *program : Program{};
}

TEST(Verify, SlicesLieWithinTheirBufferAndNotOverEachOther) {
  EXPECT_THAT(Messages(Bucketed("  slot[2] bucket 8 u8 slices of bucket at 8 and bucket at 0\n")), IsEmpty());
  const std::vector<std::pair<std::string, std::string>> wrong = {
      {"  slot[2] bucket 8 u8 slices of bucket at 8\n", "are 2 buffers and 1 slices"},
      {"  slot bucket 8 u8 slices of bucket at 9\n", "slice of bucket at 9, which is not one buffer with so many"},
      {"  slot bucket 4 bf16 slices of bucket at 0\n", "elements of its dtype"},
      {"  slot bucket 8 u8 slices of family at 0\n", "is not one buffer"},
      {"  slot[2] bucket 8 u8 slices of bucket at 0 and bucket at 7\n", "two slices of bucket overlap at 7"},
      {"  slot bucket 8 u8 slices of bucket at 0\n  other bucket 8 u8 slices of bucket at 4\n", "overlap at 4"},
      {"  slot bucket 8 u8 slices of bucket at 0\n  all bucket 16 u8 view of bucket\n", "a view that is all of it"},
  };
  for (const auto& [slots, message] : wrong) {
    EXPECT_THAT(Messages(Bucketed(slots)), ElementsAre(HasSubstr(message))) << slots;
  }
}

TEST(Verify, ASlicedBufferIsOnlyAllocatedAndFreedAndItsSlicesOnlyReadAndWritten) {
  const std::string slot = "  slot bucket 8 u8 slices of bucket at 0\n";
  EXPECT_THAT(Messages(Bucketed(slot, "compute w rope() on main writes slot\n")), IsEmpty());
  EXPECT_THAT(Messages(Bucketed(slot, "compute w rope() on main writes bucket\n")),
              ElementsAre(HasSubstr("it is only allocated and freed itself")));
  EXPECT_THAT(Messages(Bucketed(slot, "alloc slot\n")), ElementsAre(HasSubstr("is a view")));
}

TEST(Verify, ASliceLivesAsLongAsItsBuffer) {
  const std::string slot = "  slot bucket 8 u8 slices of bucket at 0\n";
  const auto rule = [&](const std::string& lines) {
    const std::vector<Finding> findings = Verify({{Bucketed(slot, lines)}});
    return findings.empty() ? std::string() : std::string(Name(findings.front().rule));
  };
  EXPECT_EQ(rule("compute w rope() on main writes slot\nfree bucket\nalloc bucket\n"), "");
  EXPECT_EQ(rule("free bucket\ncompute w rope() on main writes slot\nalloc bucket\n"), "used_before_alloc");
  EXPECT_EQ(rule("compute r rope() on main reads slot\n"), "read_before_write");
  EXPECT_EQ(rule("compute w rope() on main writes slot\ncompute r rope() on main reads slot\n"), "");
  EXPECT_EQ(
      rule("compute w rope() on main writes slot\nfree bucket\nalloc bucket\ncompute r rope() on main reads slot\n"),
      "read_before_write");
}

TEST(Verify, ASliceIsNotWrittenByItsNeighbour) {
  const Program program = Bucketed("  slot[2] bucket 8 u8 slices of bucket at 0 and bucket at 8\n",
                                   "compute w rope() on main writes slot[0]\ncompute r rope() on main reads slot[1]\n");
  const std::vector<Finding> findings = Verify({{program}});
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings.front().rule, Finding::Rule::read_before_write);
}

TEST(Verify, AViewHasNoLifeOfItsOwn) {
  Program program = Bucketed("  slot bucket 8 u8 slices of bucket at 0\n");
  for (bool Buffer::*stays : {&Buffer::resident, &Buffer::kept}) {
    program.buffers.back().*stays = true;
    EXPECT_THAT(Messages(program), ElementsAre(HasSubstr("slot is a view: only its base can be resident or kept")));
    program.buffers.back().*stays = false;
  }
  program.buffers.back().base = BufferId{0};
  EXPECT_THAT(Messages(program), Contains(HasSubstr("slot is a view of a base, and of slices")));
}

TEST(Verify, AKernelBesideAFlightOfNoCollectiveIsFound) {
  Program program = SmallRole(kResult);
  program.names.emplace_back("kernel");
  Compute kernel;
  kernel.name = NameId{static_cast<std::uint32_t>(program.names.size() - 1)};
  kernel.stream = StreamId{1};
  program.flight_sets = {{FlightId{3}}};
  kernel.beside = FlightSetId{0};
  program.nodes.push_back(kernel);
  EXPECT_THAT(Messages(program), ElementsAre(HasSubstr("no collective is in flight 3")));
  program.flight_sets = {{FlightId{}}};
  EXPECT_THAT(Messages(program), ElementsAre(HasSubstr("no collective is in flight")));
  program.flight_sets = {};
  EXPECT_THAT(Messages(program), ElementsAre(HasSubstr("no set of flights 0")));
}

TEST(Verify, SetsOfFlightsAreNeitherEmptyNorAlike) {
  Program program = SmallRole(std::string(kResult) + "all_reduce g 100 bf16 avg over dp on side in flight 0\n");
  program.flight_sets = {{FlightId{0}}};
  EXPECT_THAT(Messages(program), IsEmpty());
  program.flight_sets = {{FlightId{0}}, {FlightId{0}}};
  EXPECT_THAT(Messages(program), ElementsAre(HasSubstr("is there twice")));
  program.flight_sets = {{}};
  EXPECT_THAT(Messages(program), ElementsAre(HasSubstr("is empty")));
}

TEST(Verify, FlightsAreOfOneStreamAndAscend) {
  const std::string fly = "all_reduce g 100 bf16 avg over dp on side in flight 0\n";
  EXPECT_THAT(Broken(fly + "compute k pointwise(elements=1) on main beside flight 0"), IsEmpty());
  for (const char* wrong : {"compute k pointwise(elements=1) on main beside flight 0 0",
                            "compute k pointwise(elements=1) on side beside flight 0",
                            "all_reduce h 100 bf16 avg over dp on main in flight 0"}) {
    EXPECT_THAT(Broken(fly + wrong), ElementsAre("bad_reference")) << wrong;
  }
}

TEST(Verify, ALoopVariableOutsideItsLoopIsFound) {
  Program program = SmallRole("alloc result\nrepeat i 0..0 x1 {\nalloc b[i]\nfree b[i]\n}");
  program.nodes.push_back(Alloc{{BufferId{1}, {Index{.loop = LoopId{0}}, Index{}}}});
  EXPECT_THAT(Messages(program), ElementsAre(HasSubstr("loop i is not around it")));
}

TEST(Verify, BodiesThatLeakAreFound) {
  Program program = SmallRole("alloc result\nrepeat i 0..0 x1 {\nrepeat j 0..0 x1 {\nalloc b[j]\nfree b[j]\n}\n}");
  std::get<Repeat>(program.nodes[1]).size = 1;
  EXPECT_THAT(Messages(program), Not(IsEmpty()));
  std::get<Repeat>(program.nodes[1]).size = 1000;
  EXPECT_THAT(Messages(program), ElementsAre(HasSubstr("its body does not end within the body around it")));
}

TEST(Verify, ALoopInsideItselfOrWithoutIterationsIsFound) {
  Program program = SmallRole("alloc result\nrepeat i 0..0 x1 {\nrepeat j 0..0 x1 {\nalloc b[i]\nfree b[i]\n}\n}");
  std::get<Repeat>(program.nodes[2]).loop = LoopId{0};
  std::get<Repeat>(program.nodes[2]).count = 0;
  EXPECT_THAT(Messages(program), ElementsAre(HasSubstr("runs 0 times"), HasSubstr("loop i is around it already")));
}

TEST(Verify, NamesGivenTwiceAndAMissingHostAreFound) {
  Program program = SmallRole(kResult);
  program.events.push_back("e");
  program.buffers[0].name = "b";
  program.streams[0].kind = StreamKind::compute;
  EXPECT_THAT(Messages(program), ElementsAre(HasSubstr("the first stream is not the host"),
                                             HasSubstr("two events called e"), HasSubstr("two buffers called b")));
}

// Reporting.

TEST(Verify, ANodeWrongInEveryIterationIsReportedOnce) {
  EXPECT_THAT(Broken("repeat i 0..99 x100 {\ncompute r rope() on main reads a\n}"), ElementsAre("used_before_alloc"));
}

TEST(Verify, NoMoreFindingsThanAskedFor) {
  const Program program = SmallRole("free a\nfree s\nfree b[0]\nfree b[1]\nfree b[2]\nfree b[3]");
  EXPECT_THAT(Verify({{program}}, 3), SizeIs(3));
  EXPECT_THAT(Verify({{program}}, 0), IsEmpty());
  EXPECT_THAT(Verify({{program}}), SizeIs(7));  // six frees, and result is missing
}

}  // namespace
}  // namespace tidemark::program_verify_test
