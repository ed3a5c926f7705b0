// SPDX-License-Identifier: Apache-2.0
#include "sim/program/hazards.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "sim/program/text.h"
#include "sim/program/verify.h"

namespace tidemark::hazards_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// A role with a pool of 16 bytes and three views of it.
Program Pooled(std::string_view lines) {
  const std::string text =
      "role 0 \"stage 0\", 1 ranks\n"
      "streams:\n  host host\n  main compute\n  side collective\n"
      "events:\n  e\n"
      "buffers:\n"
      "  pool tp_gather 16 u8 born on main, resident, kept\n"
      "  whole tp_gather 16 u8 view of pool\n"
      "  part activation 8 u8 view of pool\n"
      "  layer.part[1][3] activation 8 u8 view of pool\n"
      "  out parameter 8 u8 born on main, resident, kept\n"
      "program:\n" +
      std::string(lines);
  Result<Program> program = ParseProgram(text);
  EXPECT_TRUE(program.ok()) << program.error().Text();
  return program ? *program : Program{};
}

std::vector<std::string> Hazards(const Program& program) {
  std::vector<std::string> all;
  for (const Hazard& hazard : FindHazards(program)) {
    all.push_back(Describe(program, hazard));
  }
  return all;
}

std::vector<std::string> Broken(const Program& program) {
  std::vector<std::string> rules;
  for (const Finding& finding : Verify({{program}})) {
    rules.emplace_back(Name(finding.rule));
  }
  return rules;
}

TEST(Hazards, AValueThatIsReadBeforeTheNextOneIsWrittenIsSafe) {
  const Program program = Pooled(
      "compute a rope() on main writes whole\ncompute b rope() on main reads whole writes out\n"
      "compute c rope() on main writes part\ncompute d rope() on main reads part writes out\n");
  EXPECT_THAT(Hazards(program), IsEmpty());
  EXPECT_THAT(Broken(program), IsEmpty());
}

TEST(Hazards, AValueThatIsReadAfterTheNextOneWasWrittenIsClobbered) {
  const Program program = Pooled(
      "compute a rope() on main writes whole\ncompute c rope() on main writes part\n"
      "compute b rope() on main reads whole writes out\n");
  EXPECT_THAT(Hazards(program), ElementsAre("microbatch -1: b reads whole, which c has overwritten in pool"));
  EXPECT_THAT(Broken(program), ElementsAre("clobbered_value"));
}

TEST(Hazards, OfSeveralReadsAfterOneWriteTheFirstCounts) {
  EXPECT_THAT(Hazards(Pooled("compute a rope() on main writes whole\ncompute c rope() on main writes part\n"
                             "compute b rope() on main reads whole writes out\n"
                             "compute d rope() on main reads whole writes out\n")),
              ElementsAre("microbatch -1: b reads whole, which c has overwritten in pool"));
}

TEST(Hazards, EachLastWriteBeforeAReadIsAHazardOfItsOwn) {
  EXPECT_THAT(Hazards(Pooled("compute a rope() on main writes whole\ncompute c rope() on main writes part\n"
                             "compute b rope() on main reads whole writes out\n"
                             "compute f rope() on main writes part\n"
                             "compute d rope() on main reads whole writes out\n")),
              ElementsAre("microbatch -1: b reads whole, which c has overwritten in pool",
                          "microbatch -1: d reads whole, which f has overwritten in pool"));
}

TEST(Hazards, AViewThatNobodyWroteHasNoValue) {
  EXPECT_THAT(Hazards(Pooled("compute b rope() on main reads whole writes out\n")),
              ElementsAre("microbatch -1: b reads whole, which nobody has written in pool"));
}

TEST(Hazards, OneNameMayBeUsedAgain) {
  EXPECT_THAT(Hazards(Pooled("compute a rope() on main writes whole\ncompute c rope() on main writes whole\n"
                             "compute b rope() on main reads whole writes out\n")),
              IsEmpty());
}

TEST(Hazards, SayTheMicrobatchAndTheLayerOfTheReader) {
  EXPECT_THAT(Hazards(Pooled("begin forward microbatch 2\n"
                             "compute a rope() on main writes layer.part[0][1]\n"
                             "compute c rope() on main writes part\n"
                             "compute layer.b rope() on main reads layer.part[0][1] writes out\n"
                             "end forward\n")),
              ElementsAre("microbatch 2, layer 1: layer.b reads layer.part[0][1], which c has overwritten in pool"));
}

TEST(Hazards, TwoStreamsAtOnePoolNeedAnOrderThoughTheirNamesDiffer) {
  EXPECT_THAT(Broken(Pooled("compute a rope() on main writes whole\ncompute b rope() on main reads whole writes out\n"
                            "compute c rope() on side writes part\n")),
              ElementsAre("unordered_access"));
}

std::vector<std::string> Races(const Program& program) {
  std::vector<std::string> all;
  for (const Hazard& race : FindRaces(program, 100)) {
    EXPECT_EQ(race.kind, Hazard::Kind::race);
    EXPECT_EQ(program.buffers[race.buffer.index].name, "pool");
    all.push_back(Describe(program, race));
  }
  return all;
}

TEST(Hazards, ARaceNamesBothAccessesAndTheLayerOfTheReader) {
  const Program program = Pooled(
      "begin forward microbatch 2\n"
      "compute a rope() on main writes layer.part[0][1]\n"
      "compute layer.b rope() on main reads layer.part[0][1] writes out\n"
      "compute c rope() on side writes whole\n"
      "end forward\n");
  EXPECT_THAT(Broken(program), ElementsAre("unordered_access"));
  EXPECT_THAT(Races(program), ElementsAre("microbatch 2: c and a touch whole without an order between them, on side, "
                                          "which has not waited for main"));
}

TEST(Hazards, ARaceOfAReaderBehindAWriterNamesTheReader) {
  const Program program = Pooled(
      "begin forward microbatch 2\n"
      "compute c rope() on side writes layer.part[0][1]\n"
      "compute layer.b rope() on main reads layer.part[0][1] writes out\n"
      "end forward\n");
  const std::vector<Hazard> races = FindRaces(program, 100);
  ASSERT_EQ(races.size(), 1u);
  EXPECT_EQ(races[0].overwritten_by, "c");
  EXPECT_EQ(races[0].read_by, "layer.b");
  EXPECT_EQ(races[0].value, "layer.part[0][1]");
  EXPECT_EQ(races[0].microbatch, 2);
  EXPECT_EQ(races[0].layer, 1);
}

TEST(Hazards, AWriterBehindAReaderOnAnotherStreamRacesWithIt) {
  const Program program = Pooled(
      "begin forward microbatch 1\n"
      "compute a rope() on main writes layer.part[0][2]\nrecord e on main\nwait e on side\n"
      "compute layer.b rope() on main reads layer.part[0][2] writes out\n"
      "end forward\n"
      "begin forward microbatch 3\n"
      "compute c rope() on side writes whole\n"
      "end forward\n");
  const std::vector<Hazard> races = FindRaces(program, 100);
  ASSERT_EQ(races.size(), 1u);
  EXPECT_EQ(races[0].overwritten_by, "c");
  EXPECT_EQ(races[0].read_by, "layer.b");
  EXPECT_EQ(races[0].microbatch, 1);
  EXPECT_EQ(races[0].layer, 2);
  EXPECT_TRUE(FindRaces(program, 0).empty());
}

TEST(Hazards, WhatIsOrderedDoesNotRace) {
  EXPECT_THAT(Races(Pooled("compute a rope() on main writes whole\nrecord e on main\nwait e on side\n"
                           "compute b rope() on side reads whole writes out\n")),
              IsEmpty());
}

TEST(Hazards, AViewHasNoMemoryOfItsOwn) {
  EXPECT_THAT(Broken(Pooled("alloc part\n")), ElementsAre("bad_reference"));
  EXPECT_THAT(Broken(Pooled("free part\n")), ElementsAre("bad_reference"));
}

TEST(Hazards, AViewIsNoLargerThanItsBase) {
  Program program = Pooled("compute a rope() on main writes whole\n");
  program.buffers[1].elements = 17;
  EXPECT_THAT(Broken(program), ElementsAre("bad_reference"));
}

}  // namespace
}  // namespace tidemark::hazards_test
