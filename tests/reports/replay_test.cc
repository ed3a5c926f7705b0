// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "reports/render/render.h"
#include "tests/traces/trace_script.h"

namespace tidemark::replay_test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::int64_t kMiB = 1 << 20;

ReplayedSetting Setting(const std::string& allocator, std::int64_t reserved_mib, std::int64_t unused_mib) {
  ReplayedSetting setting;
  setting.allocator = allocator;
  setting.allocator_peak = Bytes((reserved_mib - unused_mib) * kMiB);
  setting.reserved_peak = setting.reserved = Bytes(reserved_mib * kMiB);
  setting.unused = Bytes(unused_mib * kMiB);
  setting.command = "tidemark replay step.trace --set kind=" + allocator;
  return setting;
}

ReplayReport Replayed() {
  ReplayReport report;
  report.title = "step.trace, stage 0: 12 memory events";
  report.tensors_peak = Bytes(700 * kMiB);
  report.replayed = Setting("torch-caching", 1000, 250);
  report.others = {Setting("exact", 700, 0), Setting("torch-caching expandable_segments=true", 800, 50)};
  const HeldSegment held{Bytes(20 * kMiB),
                         Bytes(18 * kMiB),
                         "compute",
                         {{"layer.norm", Category::activation, 2, Bytes(kMiB), "forward 3"}}};
  report.pinned = {held, held};
  return report;
}

TEST(Replay, HoldersOfOneFamilyAreCountedTogetherAndTheLargestComesFirst) {
  Trace trace = Play(
      {Begun("forward", 2), Allocated("small", 10, 0), Allocated("large", 50), Allocated("small", 10, 1), Ended()});
  trace.streams = {{"compute", "compute"}};
  for (MemoryEvent& event : trace.memory) {
    event.stream = 0;
  }
  const HeldSegment segment = DescribeSegment(trace, InstantNames(trace), Bytes(100), Bytes(30), {0, 2, 1});
  ASSERT_EQ(segment.holders.size(), 2U);
  EXPECT_EQ(segment.holders[0].name, "large");
  EXPECT_EQ(segment.holders[1].name, "small");
  EXPECT_EQ(segment.holders[1].count, 2);
  EXPECT_EQ(segment.holders[1].bytes, Bytes(20));
  EXPECT_EQ(segment.holders[1].since, "forward 2");
  EXPECT_EQ(segment.stream, "compute");
}

TEST(Replay, ItsTimelineKeepsTheHighestInstantOfEveryStretch) {
  std::vector<Happening> script;
  for (std::int32_t i = 0; i < 500; ++i) {
    script.push_back(Allocated("a", i == 333 ? 1000 : 1, i));
    script.push_back(Freed("a", i));
  }
  const Trace trace = Play(script);
  const std::vector<ReplayInstant> timeline = SummariseReplay(trace);
  EXPECT_LE(timeline.size(), kReplayInstants);
  EXPECT_GE(timeline.size(), kReplayInstants / 2);
  Bytes highest;
  for (const ReplayInstant& instant : timeline) {
    highest = std::max(highest, instant.allocated);
  }
  EXPECT_EQ(highest, Bytes(1000));
}

TEST(Replay, TheVerdictNamesAKnobOfTheSameAllocatorThatSaves) {
  const std::string text = RenderAs("terminal", Replayed());
  EXPECT_THAT(text, HasSubstr("torch-caching reserves 1000 MiB at most; torch-caching expandable_segments=true would"));
  EXPECT_THAT(text, HasSubstr("25.0 %"));
  EXPECT_THAT(text, HasSubstr("2 x  20.0 MiB"));  // two alike are one row
  EXPECT_THAT(text, HasSubstr("2 x layer.norm (1.00 MiB)"));
  EXPECT_THAT(text, HasSubstr("forward 3"));
}

TEST(Replay, OutOfMemoryIsTheVerdict) {
  ReplayReport report = Replayed();
  report.replayed.refused = Bytes(300 * kMiB);
  report.capacity = Bytes(900 * kMiB);
  const std::string text = RenderAs("terminal", report);
  EXPECT_THAT(text, HasSubstr("OUT OF MEMORY with torch-caching: a request of 300 MiB finds no room in 900 MiB"));
  EXPECT_THAT(text, Not(HasSubstr("would do with")));
}

TEST(Replay, JsonSaysTheSame) {
  const auto json = nlohmann::ordered_json::parse(RenderAs("json", Replayed()));
  EXPECT_EQ(json["schema"], "tidemark.replay/1");
  EXPECT_EQ(json["allocated_bytes"], 700 * kMiB);
  EXPECT_EQ(json["reserved_bytes"], 1000 * kMiB);
  EXPECT_DOUBLE_EQ(json["fragmentation"], 0.25);
  ASSERT_EQ(json["pinned"].size(), 2U);
  EXPECT_EQ(json["pinned"][0]["held_by"][0]["since"], "forward 3");
  EXPECT_TRUE(json["refused_bytes"].is_null());
}

}  // namespace
}  // namespace tidemark::replay_test
