// SPDX-License-Identifier: Apache-2.0
#include "traces/trace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace tidemark::trace_test {
namespace {

using testing::HasSubstr;

/// Two tensors of 100 bytes and one phase; `memory` is for the test to fill.
Trace Small() {
  Trace trace;
  trace.tensors = {{"x", Category::activation, DType::bf16, Bytes(100)},
                   {"y", Category::bucket, DType::fp32, Bytes(100)}};
  trace.spans = {{"forward", 0, Nanos(0), Nanos(10)}};
  trace.strings = {"gemm"};
  trace.streams = {{"compute", "compute"}};
  return trace;
}

MemoryEvent Event(bool alloc, std::uint32_t tensor, std::int64_t issue_ns = 0) {
  MemoryEvent event;
  event.alloc = alloc;
  event.tensor = TensorNameId{tensor};
  event.issue = Nanos(issue_ns);
  return event;
}

TEST(VerifyTrace, acceptsABufferThatLivesTwice) {
  Trace trace = Small();
  trace.memory = {Event(true, 0), Event(false, 0, 1), Event(true, 0, 2), Event(false, 0, 3)};
  EXPECT_EQ(Verify(trace), "");
}

TEST(VerifyTrace, stepsFollowEachOther) {
  Trace trace = Small();
  trace.steps = {{"first", Nanos(0), Nanos(7), 0}, {"second", Nanos(7), Nanos(9), 0}};
  EXPECT_EQ(Verify(trace), "");
  trace.steps[1].begin = Nanos(6);
  EXPECT_THAT(Verify(trace), HasSubstr("step 2 of 2 runs backwards"));
  trace.steps = {{"first", Nanos(0), Nanos(7), 3}, {"second", Nanos(7), Nanos(9), 2}};
  EXPECT_THAT(Verify(trace), HasSubstr("step 2 of 2 begins at an earlier event"));
}

TEST(VerifyTrace, refusesTimesAndTotalsWithWhichNobodyCanCalculate) {
  const std::int64_t far = (std::int64_t{1} << 61) + 1;
  Trace good = Small();
  good.memory = {Event(true, 0)};
  good.spans[0].begin = Nanos(-5);  // before the first event: another clock
  EXPECT_EQ(Verify(good), "");
  std::vector<Trace> bad(7, good);
  bad[0].spans[0].begin = Nanos(-far);
  bad[1].steps = {{"first", Nanos(0), Nanos(far), 0}};
  bad[2].slices = {{0, TraceStringId{0}, Nanos(0), Nanos(far)}};
  bad[3].memory[0].issue = Nanos(far);
  bad[4].memory[0].ready = Nanos(-far);
  bad[5].memory[0].reserved_bytes = Bytes(-1);
  bad[6].step = Nanos(far);
  for (const Trace& trace : bad) {
    EXPECT_THAT(Verify(trace), HasSubstr("cannot be"));
  }
}

TEST(VerifyTrace, acceptsABufferThatIsNeverFreed) {
  Trace trace = Small();
  trace.memory = {Event(true, 0)};
  EXPECT_EQ(Verify(trace), "");
}

TEST(VerifyTrace, refusesAFreeOfWhatIsNotAlive) {
  Trace trace = Small();
  trace.memory = {Event(true, 0), Event(false, 1)};
  EXPECT_THAT(Verify(trace), HasSubstr("memory event 1: frees y[0][0], which is not alive"));
}

TEST(VerifyTrace, refusesASecondAllocationOfALiveMember) {
  Trace trace = Small();
  trace.memory = {Event(true, 0), Event(true, 0)};
  EXPECT_THAT(Verify(trace), HasSubstr("alive already"));
}

TEST(VerifyTrace, tellsMembersOfAFamilyApart) {
  Trace trace = Small();
  trace.memory = {Event(true, 0), Event(true, 0), Event(true, 0)};
  trace.memory[1].index0 = 1;
  trace.memory[2].index1 = 1;
  EXPECT_EQ(Verify(trace), "");
}

TEST(VerifyTrace, refusesIdsOutOfRange) {
  Trace tensor = Small();
  tensor.memory = {Event(true, 2)};
  EXPECT_THAT(Verify(tensor), HasSubstr("tensor that the trace does not have"));

  Trace span = Small();
  span.memory = {Event(true, 0)};
  span.memory[0].span = 1;
  EXPECT_THAT(Verify(span), HasSubstr("phase that the trace does not have"));

  Trace stream = Small();
  stream.slices = {{1, TraceStringId{0}, Nanos(0), Nanos(1)}};
  EXPECT_NE(Verify(stream), "");

  Trace name = Small();
  name.slices = {{0, TraceStringId{1}, Nanos(0), Nanos(1)}};
  EXPECT_NE(Verify(name), "");

  Trace phase = Small();
  phase.slices = {{0, TraceStringId{0}, Nanos(0), Nanos(1), 1}};
  EXPECT_THAT(Verify(phase), HasSubstr("phase that the trace does not have"));
}

TEST(VerifyTrace, refusesTimeThatRunsBackwards) {
  Trace events = Small();
  events.memory = {Event(true, 0, 5), Event(true, 1, 4)};
  EXPECT_NE(Verify(events), "");

  Trace span = Small();
  span.spans[0].end = Nanos(-1);
  EXPECT_NE(Verify(span), "");

  Trace slice = Small();
  slice.slices = {{0, TraceStringId{0}, Nanos(3), Nanos(2)}};
  EXPECT_NE(Verify(slice), "");
}

TEST(VerifyTrace, refusesTotalsThatWouldOverflow) {
  Trace trace = Small();
  trace.tensors[0].bytes = Bytes(std::int64_t{1} << 62);
  trace.memory = {Event(true, 0), Event(true, 1)};
  EXPECT_THAT(Verify(trace), HasSubstr("more than 2^62 bytes"));
}

}  // namespace
}  // namespace tidemark::trace_test
