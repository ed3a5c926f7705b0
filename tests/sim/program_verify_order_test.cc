// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/sim/small_role.h"

namespace tidemark::program_verify_order_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Order between streams. Every program allocates a on main and uses it on side.

TEST(VerifyOrder, AWriteThatAnotherStreamReadsAfterWaitingIsFine) {
  EXPECT_THAT(Broken("alloc a\ncompute w rope() on main writes a\nrecord e on main\nwait e on side\n"
                     "all_reduce r 8 u8 sum over dp on side reads a\nrecord f on side\nwait f on main\nfree a"),
              IsEmpty());
}

TEST(VerifyOrder, AReadOnAnotherStreamWithoutAWaitIsFound) {
  EXPECT_THAT(Broken("alloc a\ncompute w rope() on main writes a\nrecord e on main\n"
                     "all_reduce r 8 u8 sum over dp on side reads a\nrecord f on side\nwait f on main\nfree a"),
              ElementsAre("unordered_access"));
  EXPECT_THAT(FirstMessage("alloc a\ncompute w rope() on main writes a\n"
                           "all_reduce r 8 u8 sum over dp on side reads a\nsync device\nfree a"),
              HasSubstr("a is read on side, which has not waited for main, where compute w writes it"));
}

TEST(VerifyOrder, AnEventRecordedTooEarlyOrdersNothingAfterIt) {
  EXPECT_THAT(Broken("alloc a\nrecord e on main\ncompute w rope() on main writes a\nwait e on side\n"
                     "all_reduce r 8 u8 sum over dp on side reads a\nsync device\nfree a"),
              ElementsAre("unordered_access"));
}

TEST(VerifyOrder, AWaitMeansTheLatestRecordBeforeIt) {
  EXPECT_THAT(Broken("alloc a\nrecord e on main\ncompute w rope() on main writes a\nrecord e on main\nwait e on side\n"
                     "all_reduce r 8 u8 sum over dp on side reads a\nsync device\nfree a"),
              IsEmpty());
}

TEST(VerifyOrder, OrderPassesThroughAThirdStream) {
  EXPECT_THAT(
      Broken("alloc a\ncompute w rope() on main writes a\nrecord e on main\nwait e on third\nrecord f on third\n"
             "wait f on side\nall_reduce r 8 u8 sum over dp on side reads a\nsync device\nfree a"),
      IsEmpty());
}

TEST(VerifyOrder, TwoStreamsMayReadTheSameBufferAtOnce) {
  EXPECT_THAT(Broken("all_reduce r 8 u8 sum over dp on side reads weight\ncompute r rope() on main reads weight"),
              IsEmpty());
  EXPECT_THAT(Broken("all_reduce r 8 u8 sum over dp on side reads weight\ncompute w rope() on main writes weight"),
              ElementsAre("unordered_access"));
}

// An update within the backward pass (optimizer_step.in_backward).
TEST(VerifyOrder, AWeightIsUpdatedBehindItsLastReadInThePass) {
  const std::string update =
      "optimizer u optimizer_update(elements=8, bytes_moved=8) on main reads weight writes weight\n";
  const std::string read = "compute r rope() on main reads weight writes a\n";
  const auto pass = [](const std::string& lines) {
    return "alloc a\nbegin backward microbatch 0\n" + lines + "end backward\nfree a";
  };
  EXPECT_THAT(Broken(pass(read + update)), IsEmpty());
  EXPECT_THAT(Broken(pass(update + read)), ElementsAre("early_update"));
  EXPECT_THAT(FirstMessage(pass(update + read)), HasSubstr("weight is updated before compute r reads it"));
  EXPECT_THAT(Broken(pass(update) + "\nalloc a\nbegin forward microbatch 1\n" + read + "end forward\nfree a"),
              IsEmpty());
}

TEST(VerifyOrder, AFreeOfARecordedBufferWaitsForNobody) {
  EXPECT_THAT(Broken("alloc a\ncompute w rope() on main writes a\nrecord e on main\nwait e on side\n"
                     "all_reduce r 8 u8 sum over dp on side reads a\nfree a recorded"),
              IsEmpty());
}

TEST(VerifyOrder, AFreeIsAWriteByTheStreamOfBirth) {
  const std::string until_read =
      "alloc a\ncompute w rope() on main writes a\nrecord e on main\nwait e on side\n"
      "all_reduce r 8 u8 sum over dp on side reads a\n";
  EXPECT_THAT(Broken(until_read + "free a"), ElementsAre("unordered_access"));
  EXPECT_THAT(Broken(until_read + "record f on side\nwait f on third\nfree a"), ElementsAre("unordered_access"));
  EXPECT_THAT(Broken(until_read + "record f on side\nwait f on main\nfree a"), IsEmpty());
  EXPECT_THAT(FirstMessage(until_read + "free a"),
              HasSubstr("a is freed on main, which has not waited for side, where all_reduce r reads it"));
}

TEST(VerifyOrder, AFreeAfterTheHostWaitedIsFine) {
  const std::string until_read =
      "alloc a\ncompute w rope() on main writes a\nrecord e on main\nwait e on side\n"
      "all_reduce r 8 u8 sum over dp on side reads a\n";
  EXPECT_THAT(Broken(until_read + "sync stream side\nfree a"), IsEmpty());
  EXPECT_THAT(Broken(until_read + "sync device\nfree a"), IsEmpty());
  EXPECT_THAT(Broken(until_read + "sync stream main\nfree a"), ElementsAre("unordered_access"));
  EXPECT_THAT(Broken(until_read + "record f on side\nwait f on host\nfree a"), IsEmpty());
}

TEST(VerifyOrder, WhatTheHostWaitedForIsKnownToAllItIssuesLater) {
  EXPECT_THAT(Broken("alloc a\ncompute w rope() on main writes a\nsync stream main\n"
                     "all_reduce r 8 u8 sum over dp on side reads a\nsync device\nfree a"),
              IsEmpty());
}

TEST(VerifyOrder, MemoryHandedOutByAStreamMayStillBeInUseThere) {
  // s takes memory of side, where the all-reduce may still be running.
  const std::string busy_side = "all_reduce r 8 u8 sum over dp on side reads weight\nalloc s\n";
  EXPECT_THAT(Broken(busy_side + "compute w rope() on main writes s\nrecord e on main\nwait e on side\nfree s"),
              ElementsAre("unordered_access"));
  EXPECT_THAT(
      FirstMessage(busy_side + "compute w rope() on main writes s\nsync device\nfree s"),
      HasSubstr("s is written on main, which has not waited for side, where all_reduce r may still use its memory"));
  EXPECT_THAT(Broken(busy_side + "record f on side\nwait f on main\ncompute w rope() on main writes s\n"
                                 "record e on main\nwait e on side\nfree s"),
              IsEmpty());
}

TEST(VerifyOrder, MemoryOfAStreamThatDidNothingYetIsFreeForAll) {
  EXPECT_THAT(Broken("alloc s\ncompute w rope() on main writes s\nrecord e on main\nwait e on side\nfree s"),
              IsEmpty());
}

TEST(VerifyOrder, AStreamThatWaitedForMeHandsOutWhatIUsed) {
  // side waited for main's kernel, so memory of side may have been main's; main itself need not wait for its own past.
  EXPECT_THAT(Broken("compute c rope() on main reads weight\nrecord e on main\nwait e on side\nalloc s\n"
                     "compute w rope() on main writes s\nsync device\nfree s"),
              IsEmpty());
  EXPECT_THAT(Broken("compute c rope() on main reads weight\nrecord e on main\nwait e on side\nalloc s\n"
                     "compute w rope() on third writes s\nsync device\nfree s"),
              ElementsAre("unordered_access"));
}

TEST(VerifyOrder, AnOrderMissingOnlyBetweenIterationsIsFound) {
  // Within an iteration side reads after main wrote; but nothing stops main from writing again before side has read.
  const std::string start =
      "alloc a\nrepeat i 0..3 x4 {\ncompute w rope() on main writes a\nrecord e on main\nwait e on side\n"
      "all_reduce r 8 u8 sum over dp on side reads a\n";
  EXPECT_THAT(Broken(start + "}\nsync device\nfree a"), ElementsAre("unordered_access"));
  EXPECT_THAT(FirstMessage(start + "}\nsync device\nfree a"), HasSubstr("compute w, i=1"));
  EXPECT_THAT(Broken(start + "record f on side\nwait f on main\n}\nfree a"), IsEmpty());
}

TEST(VerifyOrder, PingPongBuffersNeedOnlyWaitForTheUseBeforeLast) {
  // Gather i runs beside compute i - 1, which holds the other buffer.
  EXPECT_THAT(Broken("alloc b[0]\nalloc b[1]\n"
                     "all_gather g 8 u8 over dp on side reads weight writes b[0]\nrecord e on side\n"
                     "repeat i 1..5 x5 {\n"
                     "wait e on main\n"
                     "all_gather g 8 u8 over dp on side reads weight writes b[i%2]\n"
                     "record e on side\n"
                     "compute c rope() on main reads b[(i-1)%2]\n"
                     "record f on main\nwait f on side\n"
                     "}\nsync device\nfree b[0]\nfree b[1]"),
              IsEmpty());
  EXPECT_THAT(Broken("alloc b[0]\n"
                     "all_gather g 8 u8 over dp on side reads weight writes b[0]\nrecord e on side\n"
                     "repeat i 1..5 x5 {\n"
                     "wait e on main\n"
                     "all_gather g 8 u8 over dp on side reads weight writes b[i%1]\n"
                     "record e on side\n"
                     "compute c rope() on main reads b[(i-1)%1]\n"
                     "record f on main\nwait f on side\n"
                     "}\nsync device\nfree b[0]"),
              ElementsAre("unordered_access"));  // one buffer for both
}

TEST(VerifyOrder, AWaitForAnEventThatWasNeverRecordedIsFound) {
  EXPECT_THAT(Broken("wait e on main"), ElementsAre("wait_without_record"));
  EXPECT_THAT(Broken("record e on side\nwait e on main"), IsEmpty());
  // The first iteration waits for what only the one before it would have recorded.
  EXPECT_THAT(Broken("repeat i 0..2 x3 {\nwait e on main\nrecord e on side\n}"), ElementsAre("wait_without_record"));
}

}  // namespace
}  // namespace tidemark::program_verify_order_test
