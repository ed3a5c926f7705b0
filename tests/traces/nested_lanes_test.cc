// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/nested_lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

namespace tidemark::nested_lanes_test {
namespace {

std::vector<Interval> Make(const std::vector<std::pair<int, int>>& times) {
  std::vector<Interval> intervals;
  for (const auto& [begin, end] : times) {
    intervals.push_back({Nanos(begin), Nanos(end)});
  }
  return intervals;
}

/// What is on a lane, in order: "(0 (1 )1 )0".
std::string Lane(const std::vector<LaneMark>& marks, std::uint32_t lane) {
  std::string text;
  for (const LaneMark& mark : marks) {
    if (mark.lane == lane) {
      text += (text.empty() ? "" : " ") + std::string(mark.begins ? "(" : ")") + std::to_string(mark.interval);
    }
  }
  return text;
}

TEST(NestInLanes, whatLiesInsideOrApartSharesALane) {
  const std::vector<LaneMark> marks = NestInLanes(Make({{0, 10}, {2, 5}, {5, 9}, {10, 12}}));
  EXPECT_EQ(Lane(marks, 0), "(0 (1 )1 (2 )2 )0 (3 )3");
  EXPECT_EQ(Lane(marks, 1), "");
}

TEST(NestInLanes, whatOverlapsGoesToALaneOfItsOwn) {
  const std::vector<LaneMark> marks = NestInLanes(Make({{0, 10}, {5, 15}, {11, 20}}));
  EXPECT_EQ(Lane(marks, 0), "(0 )0 (2 )2");
  EXPECT_EQ(Lane(marks, 1), "(1 )1");
}

TEST(NestInLanes, theLongestOfThoseThatBeginTogetherIsOutside) {
  EXPECT_EQ(Lane(NestInLanes(Make({{3, 3}, {3, 8}, {3, 5}})), 0), "(1 (2 (0 )0 )2 )1");
}

TEST(NestInLanes, instantsAtAnEndAreBesideIt) {
  EXPECT_EQ(Lane(NestInLanes(Make({{0, 4}, {4, 4}, {4, 9}})), 0), "(0 )0 (2 (1 )1 )2");
}

TEST(NestInLanes, anythingIsBalancedNestedAndInOrderOfTime) {
  std::mt19937 dice(7);
  for (const int longest : {3, 40, 4000}) {  // from hardly any overlap to hundreds of lanes
    std::vector<Interval> intervals;
    for (int i = 0; i < 2000; ++i) {
      const auto begin = static_cast<std::int64_t>(dice() % 10000);
      intervals.push_back(
          {Nanos(begin), Nanos(begin + static_cast<std::int64_t>(dice() % static_cast<unsigned>(longest)))});
    }
    const std::vector<LaneMark> marks = NestInLanes(intervals);
    ASSERT_EQ(marks.size(), 2 * intervals.size());
    std::vector<std::vector<std::uint32_t>> open(intervals.size());
    std::vector<Nanos> now(intervals.size());
    for (const LaneMark& mark : marks) {
      const Interval& interval = intervals[mark.interval];
      const Nanos time = mark.begins ? interval.begin : interval.end;
      ASSERT_GE(time, now[mark.lane]);
      now[mark.lane] = time;
      std::vector<std::uint32_t>& lane = open[mark.lane];
      if (mark.begins) {
        ASSERT_TRUE(lane.empty() || interval.end <= intervals[lane.back()].end);
        lane.push_back(mark.interval);
      } else {
        ASSERT_FALSE(lane.empty());
        ASSERT_EQ(lane.back(), mark.interval);
        lane.pop_back();
      }
    }
    EXPECT_TRUE(std::all_of(open.begin(), open.end(), [](const auto& lane) { return lane.empty(); }));
  }
}

}  // namespace
}  // namespace tidemark::nested_lanes_test
