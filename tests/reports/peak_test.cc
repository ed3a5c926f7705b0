// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/peak.h"
#include "traces/trace.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tidemark::peak_test {
namespace {

/// One step on paper. Bytes alive after each event in brackets:
///   resident  +w 100 [100]
///   forward   +a[0] 30 [130]  +a[1] 30 [160]  -a[1] [130]
///   backward  +g 30 [160]  -a[0] [130]  -g [100]
/// The highest total, 160, is reached twice; the first time counts.
Trace OnPaper() {
  Trace trace;
  trace.tensors = {{"w", Category::parameter, DType::bf16, Bytes(100)},
                   {"a", Category::activation, DType::bf16, Bytes(30)},
                   {"g", Category::gradient, DType::bf16, Bytes(30)}};
  trace.spans = {{"forward", 2, Nanos(0), Nanos(50)}, {"backward", 2, Nanos(50), Nanos(90)}};
  const auto add = [&](bool alloc, std::uint32_t tensor, std::int32_t member, std::int64_t issue_ns,
                       std::uint16_t span) {
    MemoryEvent event;
    event.alloc = alloc;
    event.tensor = TensorNameId{tensor};
    event.index0 = member;
    event.issue = Nanos(issue_ns);
    event.span = span;
    trace.memory.push_back(event);
  };
  add(true, 0, 0, 0, kNoSpan);
  add(true, 1, 0, 10, 0);
  add(true, 1, 1, 20, 0);
  add(false, 1, 1, 30, 0);
  add(true, 2, 0, 60, 1);
  add(false, 1, 0, 70, 1);
  add(false, 2, 0, 80, 1);
  return trace;
}

TEST(SummarisePeak, takesTheFirstInstantOfTheHighestTotal) {
  const Peak peak = SummarisePeak(OnPaper());
  EXPECT_EQ(peak.allocated, Bytes(160));
  EXPECT_EQ(peak.at, Nanos(20));
  EXPECT_EQ(peak.phase, "forward");
  EXPECT_EQ(peak.microbatch, 2);
}

/// A block's moments are one family, of another sharding another; two tensors that are only called alike are none.
TEST(SummarisePeak, tellsABlocksMomentsTogether) {
  Trace trace;
  const auto add = [&](const char* name, Category category, std::int64_t bytes, const char* sharding) {
    MemoryEvent event;
    event.alloc = true;
    event.tensor = TensorNameId{static_cast<std::uint32_t>(trace.tensors.size())};
    event.span = kNoSpan;
    TraceTensor tensor{name, category, DType::fp32, Bytes(bytes)};
    tensor.sharding = sharding;
    trace.tensors.push_back(std::move(tensor));
    trace.memory.push_back(event);
  };
  add("first moment of layer.wq", Category::optimizer, 10, "1/2 over tp");
  add("first moment of layer.norm", Category::optimizer, 1, "whole");
  add("second moment of layer.wq", Category::optimizer, 10, "1/2 over tp");
  add("second moment of layer.norm", Category::optimizer, 1, "whole");
  add("second moment of head.norm", Category::optimizer, 3, "whole");
  add("aten::mm", Category::unknown, 5, "");
  add("aten::mm", Category::unknown, 4, "");
  std::vector<std::string> told;
  for (const LiveBuffers& live : SummarisePeak(trace).live) {
    told.push_back(fmt::format("{} {} {}", live.name, live.count, live.bytes.count()));
  }
  EXPECT_EQ(told, (std::vector<std::string>{"moments of layer 2 20", "aten::mm 1 5", "aten::mm 1 4",
                                            "moments of head 1 3", "moments of layer 2 2"}));
}

TEST(SummarisePeak, tellsBucketsTogether) {
  Trace trace;
  for (const char* name : {"bucket 0", "stage 1 bucket 0", "bucket 12", "first bucket 0", "stage 1 first bucket 0",
                           "gradient bucket", "chunk 3"}) {
    MemoryEvent event;
    event.alloc = true;
    event.tensor = TensorNameId{static_cast<std::uint32_t>(trace.tensors.size())};
    event.span = kNoSpan;
    trace.tensors.push_back({name, Category::bucket, DType::bf16, Bytes(10)});
    trace.memory.push_back(event);
  }
  std::map<std::string, std::int64_t> told;
  for (const LiveBuffers& live : SummarisePeak(trace).live) {
    told[live.name] = live.count;
  }
  EXPECT_EQ(told, (std::map<std::string, std::int64_t>{{"buckets", 2},
                                                       {"chunk 3", 1},
                                                       {"first bucket 0", 1},
                                                       {"stage 1 first bucket 0", 1},
                                                       {"gradient bucket", 1},
                                                       {"stage 1 buckets", 1}}));
}

TEST(SummarisePeak, tellsInstantsOutsideOfPhasesByTheClock) {
  Trace trace = OnPaper();
  trace.memory[1].span = trace.memory[5].span = kNoSpan;  // a[0], behind w alone and before a[1]'s phase
  Peak peak = SummarisePeak(trace);
  EXPECT_EQ(peak.live[1].name, "a");
  EXPECT_EQ(peak.live[1].since_phase, "before the step");
  EXPECT_EQ(peak.live[1].until_phase, "at 70 ns");
  for (MemoryEvent& event : trace.memory) {
    event.span = kNoSpan;
  }
  peak = SummarisePeak(trace);
  EXPECT_EQ(peak.live[0].since_phase, "the beginning");
  EXPECT_EQ(peak.live[0].until_phase, "the end");
  EXPECT_EQ(peak.live[1].since_phase, "at 10 ns");
  EXPECT_EQ(peak.live[1].until_phase, "at 70 ns");
}

TEST(SummarisePeak, splitsThePeakByCategory) {
  const Peak peak = SummarisePeak(OnPaper());
  EXPECT_EQ(peak.by_category[Category::parameter], Bytes(100));
  EXPECT_EQ(peak.by_category[Category::activation], Bytes(60));
  EXPECT_EQ(peak.by_category[Category::gradient], Bytes(0));
  EXPECT_EQ(peak.by_category.Total(), peak.allocated);
}

TEST(SummarisePeak, tellsSinceWhenAndUntilWhenEachFamilyLives) {
  const Peak peak = SummarisePeak(OnPaper());
  ASSERT_EQ(peak.live.size(), 2U);
  EXPECT_EQ(peak.live[0].name, "w");
  EXPECT_EQ(peak.live[0].since_phase, "before the step");
  EXPECT_EQ(peak.live[0].until, std::nullopt);
  EXPECT_EQ(peak.live[0].until_phase, "after the step");
  EXPECT_EQ(peak.live[1].name, "a");
  EXPECT_EQ(peak.live[1].count, 2);
  EXPECT_EQ(peak.live[1].bytes, Bytes(60));
  EXPECT_EQ(peak.live[1].since, Nanos(10));
  EXPECT_EQ(peak.live[1].until, Nanos(70));  // a[1] goes at 30, a[0] at 70: the last one counts
  EXPECT_EQ(peak.live[1].until_phase, "backward 2");
}

TEST(SummarisePeak, ofAnEmptyTraceIsZero) {
  EXPECT_EQ(SummarisePeak(Trace()).allocated, Bytes(0));
  EXPECT_EQ(SummarisePeak(Trace()).at, std::nullopt);
}

TEST(SummarisePhases, findsTheHighestPointOfEachPhase) {
  const std::vector<PhasePeak> phases = SummarisePhases(OnPaper());
  ASSERT_EQ(phases.size(), 2U);
  EXPECT_EQ(phases[0].phase, "forward");
  EXPECT_EQ(phases[0].allocated, Bytes(160));
  EXPECT_EQ(phases[1].phase, "backward");
  EXPECT_EQ(phases[1].allocated, Bytes(160));
  EXPECT_EQ(phases[0].where, "microbatch 2");
}

TEST(SummarisePhases, namesTheFirstChunkOfASideThatReachesIt) {
  Trace trace = OnPaper();
  trace.spans = {{"C_forward", 2, Nanos(0), Nanos(50), "query"}, {"C_backward", 2, Nanos(50), Nanos(90), "passage"}};
  const std::vector<PhasePeak> phases = SummarisePhases(trace);
  EXPECT_EQ(phases[0].where, "query chunk 2");
  EXPECT_EQ(phases[1].where, "passage chunk 2");
  EXPECT_EQ(SummarisePeak(trace).side, "query");
  EXPECT_EQ(PhaseText("C_forward", 2, -1, "query"), "C_forward of query chunk 2");
  EXPECT_EQ(PhaseLabel("C_forward", 2, 0, "query"), "C_forward query 2, step 1");
}

TEST(SummarisePhases, aPhaseThatOnlyFreesBeginsWithWhatItFound) {
  Trace trace = OnPaper();
  trace.spans.push_back({"optimizer", -1, Nanos(90), Nanos(99)});
  MemoryEvent event;
  event.alloc = false;
  event.tensor = TensorNameId{0};
  event.issue = Nanos(95);
  event.span = 2;
  trace.memory.push_back(event);
  EXPECT_EQ(SummarisePhases(trace)[2].allocated, Bytes(100));
}

}  // namespace
}  // namespace tidemark::peak_test
