// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "sim/program/program.h"

namespace tidemark::wire_test {
namespace {

constexpr CollectiveKind kKinds[] = {
    CollectiveKind::all_reduce, CollectiveKind::reduce_scatter, CollectiveKind::all_gather, CollectiveKind::all_to_all,
    CollectiveKind::broadcast,  CollectiveKind::reduce,         CollectiveKind::shift_up,   CollectiveKind::shift_down};

TEST(WireBytes, OfARankAloneAreNone) {
  for (const CollectiveKind kind : kKinds) {
    EXPECT_EQ(WireBytes(kind, Bytes(1000), 1), Bytes(0)) << Name(kind);
  }
}

// floor(S (n-1)/n), S = 1,000, n = 3: floor(666.67).
TEST(WireBytes, OfARingAreRoundedDownOnce) {
  EXPECT_EQ(WireBytes(CollectiveKind::all_gather, Bytes(1000), 3), Bytes(666));
  EXPECT_EQ(WireBytes(CollectiveKind::reduce_scatter, Bytes(1000), 3), Bytes(666));
  EXPECT_EQ(WireBytes(CollectiveKind::all_to_all, Bytes(1000), 3), Bytes(666));
}

TEST(WireBytes, OfAllReduceAreTwiceTheRoundedRing) {
  EXPECT_EQ(WireBytes(CollectiveKind::all_reduce, Bytes(1000), 3), Bytes(1332));  // not floor(1333.33)
}

TEST(WireBytes, OfBroadcastReduceAndShiftsAreThePayload) {
  EXPECT_EQ(WireBytes(CollectiveKind::broadcast, Bytes(1000), 3), Bytes(1000));
  EXPECT_EQ(WireBytes(CollectiveKind::reduce, Bytes(1000), 3), Bytes(1000));
  EXPECT_EQ(WireBytes(CollectiveKind::shift_up, Bytes(1000), 3), Bytes(1000));
  EXPECT_EQ(WireBytes(CollectiveKind::shift_down, Bytes(1000), 3), Bytes(1000));
}

TEST(WireBytes, DoNotOverflowOnTheWay) {
  EXPECT_EQ(WireBytes(CollectiveKind::all_gather, Bytes(std::int64_t{1} << 60), 1024),
            Bytes((std::int64_t{1} << 60) - (std::int64_t{1} << 50)));
}

TEST(Names, OfCollectivesAreThoseOfTheReports) {
  const std::string_view names[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                    "broadcast",  "reduce",         "shift_up",   "shift_down"};
  for (std::size_t i = 0; i < std::size(kKinds); ++i) {
    EXPECT_EQ(Name(kKinds[i]), names[i]);
  }
}

TEST(Names, OfTheProgramsEnumerationsFollowTheirOrder) {
  EXPECT_EQ(Name(Phase::load), "load");
  EXPECT_EQ(Name(Phase::gather), "gather");
  EXPECT_EQ(Name(StreamKind::host), "host");
  EXPECT_EQ(Name(StreamKind::copy), "copy");
  EXPECT_EQ(Name(Work::compute), "compute");
  EXPECT_EQ(Name(Work::optimizer), "optimizer");
  EXPECT_EQ(Name(Reduction::none), "none");
  EXPECT_EQ(Name(Reduction::avg), "avg");
}

}  // namespace
}  // namespace tidemark::wire_test
