// SPDX-License-Identifier: Apache-2.0
#include "traces/compare/compare.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "tests/traces/compared_scripts.h"

namespace tidemark::compare_test {
namespace {

using Kind = MemoryCauseKind;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

void Erase(std::vector<Happening>& script, std::size_t at) {
  script.erase(script.begin() + static_cast<std::ptrdiff_t>(at));
}

void Insert(std::vector<Happening>& script, std::size_t at, const Happening& happening) {
  script.insert(script.begin() + static_cast<std::ptrdiff_t>(at), happening);
}

TEST(CompareTraces, aTraceIsLikeItself) {
  const TraceComparison same = Compare(TwoMicrobatches(), TwoMicrobatches());
  EXPECT_EQ(same.peak_error(), Bytes(0));
  EXPECT_EQ(same.predicted.peak, Bytes(190));  // the first gradient is there when the second microbatch peaks
  EXPECT_THAT(same.memory, IsEmpty());
  EXPECT_THAT(same.unmatched, IsEmpty());
  EXPECT_THAT(same.time, IsEmpty());
  EXPECT_FALSE(same.first);
  ASSERT_THAT(same.phases, SizeIs(2));
  EXPECT_EQ(same.phases[0].phase, "forward");
  EXPECT_EQ(same.phases[0].predicted_peak, Bytes(190));
  EXPECT_EQ(same.phases[0].measured_peak, Bytes(190));
  EXPECT_EQ(same.phases[1].predicted_peak, Bytes(180));  // weights, saved, both gradients
  EXPECT_EQ(same.phases[1].largest_error, Bytes(0));
}

TEST(CompareTraces, aMissingTransientIsNamedWithItsBytes) {
  std::vector<Happening> measured = TwoMicrobatches();
  const std::size_t second = Find(measured, Happening::Kind::begin, "backward");
  Erase(measured, Find(measured, Happening::Kind::alloc, "scratch", second));
  Erase(measured, Find(measured, Happening::Kind::free, "scratch", second));
  const TraceComparison found = Compare(TwoMicrobatches(), measured);
  // Without it the second microbatch peaks at 180 when both gradients are there: 10 less, not 30.
  EXPECT_EQ(found.peak_error(), Bytes(10));
  ASSERT_THAT(found.memory, SizeIs(2));
  EXPECT_EQ(found.memory[0].kind, Kind::missing);
  EXPECT_EQ(found.memory[0].tensor, "scratch");
  EXPECT_EQ(found.memory[0].at_peak, Bytes(30));
  EXPECT_EQ(found.memory[0].place, (PhasePlace{"forward", 1, -1, ""}));
  EXPECT_EQ(found.memory[1].kind, Kind::other_moment);
  EXPECT_EQ(found.memory[1].at_peak, Bytes(-20));
  EXPECT_EQ(found.memory[1].measured.place, (PhasePlace{"backward", 1, -1, ""}));
  ASSERT_THAT(found.unmatched, SizeIs(1));
  EXPECT_TRUE(found.unmatched[0].predicted);
  EXPECT_EQ(found.unmatched[0].name, "scratch");
  EXPECT_EQ(found.unmatched[0].bytes, Bytes(30));
  EXPECT_EQ(found.unmatched[0].place.phase, "forward");
  ASSERT_TRUE(found.first);
  EXPECT_THAT(found.first->predicted, HasSubstr("allocates scratch"));
  EXPECT_THAT(found.first->measured, HasSubstr("allocates gradient"));
}

TEST(CompareTraces, aTensorThatIsFreedLaterSaysBetweenWhichAllocations) {
  std::vector<Happening> measured = TwoMicrobatches();
  Erase(measured, Find(measured, Happening::Kind::free, "saved"));
  const std::size_t second = Find(measured, Happening::Kind::begin, "forward", 2);
  Insert(measured, second + 1, Freed("saved"));  // as the second microbatch begins: before it saves its own
  Insert(measured, second + 1, Allocated("tokens", 1, 0, Category::input));
  std::vector<Happening> predicted = TwoMicrobatches();
  Insert(predicted, Find(predicted, Happening::Kind::begin, "forward", 2) + 1,
         Allocated("tokens", 1, 0, Category::input));
  const TraceComparison found = Compare(predicted, measured);
  EXPECT_EQ(found.peak_error(), Bytes(0));  // 161 there, below the peak of 191
  ASSERT_THAT(found.memory, SizeIs(1));
  EXPECT_EQ(found.memory[0].kind, Kind::freed_later);
  EXPECT_EQ(found.memory[0].tensor, "saved");
  EXPECT_EQ(found.memory[0].at_peak, Bytes(0));
  EXPECT_EQ(found.memory[0].predicted.after, "gradient");
  EXPECT_EQ(found.memory[0].predicted.place.phase, "backward");
  EXPECT_EQ(found.memory[0].measured.after, "tokens");
  EXPECT_EQ(found.memory[0].measured.place, (PhasePlace{"forward", 1, -1, ""}));
}

TEST(CompareTraces, anotherDtypeIsNoMissingTensor) {
  std::vector<Happening> measured = TwoMicrobatches();
  for (Happening& happening : measured) {
    if (happening.name == "saved" && happening.kind == Happening::Kind::alloc) {
      happening.bytes = 80;
      happening.dtype = DType::fp32;
    }
  }
  const TraceComparison found = Compare(TwoMicrobatches(), measured);
  EXPECT_EQ(found.peak_error(), Bytes(-40));
  ASSERT_THAT(found.memory, SizeIs(1));
  EXPECT_EQ(found.memory[0].kind, Kind::dtype);
  EXPECT_EQ(found.memory[0].lives, 2);
  EXPECT_EQ(found.memory[0].predicted_dtype, DType::bf16);
  EXPECT_EQ(found.memory[0].measured_dtype, DType::fp32);
  EXPECT_EQ(found.memory[0].at_peak, Bytes(-40));
}

TEST(CompareTraces, roundingIsWhatTheAllocatorAddsToEqualTensors) {
  // Blocks of 64 bytes: 100 + 40 + 20 + 30 become 128 + 64 + 64 + 64 = 320, against 190 without rounding; the second
  // side reserves 7 bytes more than its blocks.
  const TraceComparison found = Compare(Play(TwoMicrobatches()), Play(TwoMicrobatches(), 64, 7));
  EXPECT_EQ(found.peak_error(), Bytes(0));
  EXPECT_EQ(found.rounding, Bytes(190 - 320));
  EXPECT_EQ(found.fragmentation, Bytes(-7));
  EXPECT_THAT(found.rounded, testing::ElementsAre("weights", "saved", "scratch", "gradient"));
}

TEST(CompareTraces, workspaceOfALibraryIsCalledThat) {
  std::vector<Happening> measured = TwoMicrobatches();
  const std::size_t at = Find(measured, Happening::Kind::free, "scratch");
  Insert(measured, at, Freed("gemm workspace"));
  Insert(measured, at, Allocated("gemm workspace", 64, 0, Category::workspace));
  const TraceComparison found = Compare(TwoMicrobatches(), measured);
  // 100 + 40 + 30 + 64 in the first microbatch, against 190 in the second.
  EXPECT_EQ(found.peak_error(), Bytes(190 - 234));
  ASSERT_THAT(found.memory, SizeIs(2));
  EXPECT_EQ(found.memory[0].kind, Kind::workspace);
  EXPECT_EQ(found.memory[0].at_peak, Bytes(-64));
  EXPECT_EQ(found.memory[1].kind, Kind::other_moment);
  EXPECT_EQ(found.memory[1].at_peak, Bytes(20));  // the prediction peaks where the first gradient is there as well
}

TEST(CompareTraces, oneOccurrenceThatIsMissingDoesNotShiftTheOthers) {
  std::vector<Happening> predicted = {Begun("forward", 0)}, measured = {Begun("forward", 0)};
  for (const std::int32_t layer : {0, 1, 2, 3}) {
    for (const Happening& happening : {Allocated("in", 10, layer), Allocated("scratch", 5), Freed("scratch")}) {
      predicted.push_back(happening);
      if (layer != 1 || happening.name != "scratch") {
        measured.push_back(happening);
      }
    }
  }
  predicted.push_back(Ended());
  measured.push_back(Ended());
  const TraceComparison found = Compare(predicted, measured);
  EXPECT_EQ(found.peak_error(), Bytes(0));
  ASSERT_THAT(found.memory, SizeIs(1));
  EXPECT_EQ(found.memory[0].kind, Kind::missing);
  EXPECT_EQ(found.memory[0].lives, 1);
}

TEST(CompareTraces, tracesWithoutTensorsAreComparedByTheirAllocator) {
  Trace measured = Play(TwoMicrobatches(), 64);
  for (TraceTensor& tensor : measured.tensors) {
    tensor.bytes = Bytes(0);
  }
  const TraceComparison found = Compare(Play(TwoMicrobatches()), measured);
  EXPECT_FALSE(found.of_tensors);
  EXPECT_EQ(found.peak_error(), Bytes(190 - 320));
  ASSERT_THAT(found.memory, SizeIs(1));
  EXPECT_EQ(found.memory[0].kind, Kind::unexplained);
}

TEST(CompareTraces, residentTensorsHaveNoOrder) {
  const std::vector<Happening> one = {Allocated("a", 1),   Allocated("b", 2), Allocated("c", 3),
                                      Begun("forward", 0), Allocated("d", 4), Ended()};
  const std::vector<Happening> other = {Allocated("c", 3),   Allocated("a", 1), Allocated("b", 2),
                                        Begun("forward", 0), Allocated("d", 4), Ended()};
  const TraceComparison found = Compare(one, other);
  EXPECT_THAT(found.memory, IsEmpty());
  EXPECT_FALSE(found.first);
}

TEST(CompareTraces, theSteadyStepOfSeveralIsComparedWithAPredictedOne) {
  // Three steps on one side, the last of which is steady. The moments come in the first step's optimizer; from then on
  // they are resident.
  const std::vector<Happening> step = {Begun("forward", 0), Allocated("saved", 40), Freed("saved"), Ended(),
                                       Begun("optimizer")};
  std::vector<Happening> measured = {Allocated("weights", 100, 0, Category::parameter)};
  std::vector<std::size_t> begins;
  for (const int number : {0, 1, 2}) {
    begins.push_back(measured.size());
    measured.insert(measured.end(), step.begin(), step.end());
    if (number == 0) {
      measured.push_back(Allocated("moments", 200, 0, Category::optimizer));
      measured.push_back(Allocated("norms", 500));
      measured.push_back(Freed("norms"));
    }
    measured.push_back(Ended());
  }
  std::vector<Happening> predicted = {Allocated("moments", 200, 0, Category::optimizer),
                                      Allocated("weights", 100, 0, Category::parameter)};
  predicted.insert(predicted.end(), step.begin(), step.end());
  predicted.push_back(Ended());
  Trace steady = Play(predicted), all = Play(measured);
  steady.steps = {{"steady", Nanos(0), Nanos(80), 0}};
  all.steps = {
      {"first", Nanos(0), Nanos(90), 0}, {"second", Nanos(90), Nanos(160), 6}, {"steady", Nanos(160), Nanos(250), 8}};
  steady.step = Nanos(80);
  const TraceComparison found = Compare(steady, all);
  EXPECT_EQ(found.steps, std::vector<std::string>{"steady"});
  EXPECT_EQ(found.measured.peak, Bytes(340));  // not the 800 of the first step
  EXPECT_EQ(found.peak_error(), Bytes(0));
  EXPECT_EQ(found.step_error(), Nanos(80 - 90));
  ASSERT_THAT(found.phases, SizeIs(2));
  EXPECT_EQ(found.phases[0].measured_time, Nanos(30));  // one forward of three: two events between begin and end
  EXPECT_THAT(found.memory, IsEmpty());

  steady.steps[0].kind = "warm";
  const auto refused = CompareTraces(std::vector{steady}, std::vector{all});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::bad_input);
  EXPECT_THAT(refused.error().message, HasSubstr("has warm and the measured one first, second, steady"));
}

TEST(CompareTraces, stepsOfAKindHaveTheirMediansTime) {
  const auto with = [](std::initializer_list<int> times) {
    Trace trace;
    for (const char* kind : {"first", "second", "steady", "steady", "steady", "steady"}) {
      const Nanos begin = trace.step;
      trace.step += Nanos(times.begin()[trace.steps.size()]);
      trace.steps.push_back({kind, begin, trace.step, 0});
    }
    return trace;
  };
  const TraceComparison found = Compare(with({40, 30, 10, 10, 10, 10}), with({900, 35, 50, 11, 12, 13}));
  ASSERT_THAT(found.step_times, SizeIs(3));
  EXPECT_EQ(found.step_times[0].kind, "first");
  EXPECT_EQ(found.step_times[0].measured, Nanos(900));
  EXPECT_EQ(found.step_times[1].measured, Nanos(35));
  EXPECT_EQ(found.step_times[2].kind, "steady");
  EXPECT_EQ(found.step_times[2].count, 4);
  EXPECT_EQ(found.step_times[2].predicted, Nanos(10));
  EXPECT_EQ(found.step_times[2].measured, Nanos(12)) << "between 12 and 13, whole nanoseconds";
  EXPECT_THAT(Compare(Trace{}, Trace{}).step_times, IsEmpty()) << "traces that mark no steps";
}

TEST(CompareTraces, aTensorThatIsBornInTheNextPhaseIsBornLater) {
  const std::vector<Happening> predicted = {
      Begun("forward", 0), Allocated("a", 5), Allocated("x", 7), Ended(), Begun("backward", 0), Freed("x"), Ended()};
  const std::vector<Happening> measured = {Begun("forward", 0), Allocated("a", 5), Ended(), Begun("backward", 0),
                                           Allocated("x", 7),   Freed("x"),        Ended()};
  const TraceComparison found = Compare(predicted, measured);
  EXPECT_EQ(found.peak_error(), Bytes(0));
  ASSERT_THAT(found.memory, SizeIs(1));
  EXPECT_EQ(found.memory[0].kind, Kind::allocated_later);
  EXPECT_TRUE(found.first);
  EXPECT_EQ(found.phases[0].largest_error, Bytes(7));
}

TEST(CompareTraces, numbersThatCannotBeAddedUpAreRefused) {
  Trace hostile = Play(TwoMicrobatches());
  hostile.spans[0].begin = Nanos(-(std::int64_t{1} << 60));
  EXPECT_EQ(Verify(hostile), "");
  EXPECT_FALSE(CompareTraces(std::vector{hostile}, std::vector{Play(TwoMicrobatches())}));
  hostile = Play(TwoMicrobatches());
  hostile.memory[3].reserved_bytes = Bytes(std::numeric_limits<std::int64_t>::max());
  EXPECT_FALSE(CompareTraces(std::vector{Play(TwoMicrobatches())}, std::vector{hostile}));
}

TEST(CompareTraces, anEmptyTraceIsNoFault) {
  const TraceComparison found = Compare(Trace{}, Trace{});
  EXPECT_EQ(found.peak_error(), Bytes(0));
  EXPECT_EQ(Compare(TwoMicrobatches(), {}).peak_error(), Bytes(190));
}

TEST(CompareTraces, theWorstRankOfARoleIsTheAnswer) {
  const Trace predicted = Play(TwoMicrobatches());
  std::vector<Happening> more = TwoMicrobatches();
  more[0].bytes = 107;
  const std::vector<Trace> measured = {Play(TwoMicrobatches()), Play(more), Play(TwoMicrobatches())};
  const Result<Comparison> comparison = CompareTraces(std::vector{predicted}, measured);
  ASSERT_TRUE(comparison);
  EXPECT_THAT(comparison->roles, SizeIs(3));
  EXPECT_EQ(comparison->worst, 1U);
  EXPECT_EQ(comparison->Worst().measured_trace, 1U);
  EXPECT_EQ(comparison->Worst().peak_error(), Bytes(-7));
  EXPECT_FALSE(comparison->EqualPeaks());
}

TEST(CompareTraces, rolesAreMatchedByName) {
  Trace first = Play(TwoMicrobatches()), second = first;
  second.role = "stage 1";
  const Result<Comparison> partly = CompareTraces(std::vector{first, second}, std::vector{second});
  ASSERT_TRUE(partly);
  EXPECT_THAT(partly->roles, SizeIs(1));
  EXPECT_THAT(partly->only_predicted, testing::ElementsAre("stage 0"));
  const Result<Comparison> none = CompareTraces(std::vector{first}, std::vector{second});
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("'stage 0' and the measured ones of 'stage 1'"));
  second.role = "";
  EXPECT_TRUE(CompareTraces(std::vector{first}, std::vector{second}));
}

/// Forward, backward, forward, backward; the first forward issues a kernel, the first backward another one and a
/// reduction beside it.
Trace WithWork() {
  Trace trace = Play(TwoMicrobatches());
  trace.streams = {{"compute", "compute"}, {"nccl", "collective"}};
  trace.strings = {"layers.0.gemm", "reduce"};
  trace.slices = {{0, TraceStringId{0}, Nanos(100), Nanos(110), 0},
                  {0, TraceStringId{0}, Nanos(110), Nanos(130), 1},
                  {1, TraceStringId{1}, Nanos(120), Nanos(145), 1}};
  return trace;
}

TEST(CompareTraces, aPhaseTakesAsLongAsWhatItIssuedKeepsStreamsBusy) {
  Trace predicted = WithWork(), measured = WithWork();
  for (Span& span : predicted.spans) {
    span.end = span.begin;  // issuing costs nothing
  }
  measured.slices[0].end = Nanos(114);
  measured.slices[1].start = Nanos(114);
  const TraceComparison found = Compare(predicted, measured);
  EXPECT_TRUE(found.times_of_work);
  ASSERT_THAT(found.phases, SizeIs(2));
  EXPECT_EQ(found.phases[0].predicted_time, Nanos(10));
  EXPECT_EQ(found.phases[0].measured_time, Nanos(14));
  EXPECT_EQ(found.phases[1].predicted_time, Nanos(35));  // of 20 and 25, 10 at once
  EXPECT_EQ(found.phases[1].measured_time, Nanos(31));
}

TEST(CompareTraces, whereATraceHidesTheWorkOfPhasesBothAreTimedOnTheHost) {
  const TraceComparison found = Compare(WithWork(), Play(TwoMicrobatches()));
  EXPECT_FALSE(found.times_of_work);
  EXPECT_EQ(found.phases[0].predicted_time, Nanos(80));
  EXPECT_EQ(found.phases[0].measured_time, Nanos(80));
}

TEST(CompareTraces, workOfAStepThatIsLeftOutCountsInNoPhase) {
  Trace all = WithWork();
  all.steps = {{"first", Nanos(0), Nanos(95), 6}, {"second", Nanos(95), Nanos(190), 7}};
  all.slices[0].start = Nanos(20);
  all.slices[0].end = Nanos(90);
  all.slices[1].span = 2;  // the second forward
  all.slices[2].span = 3;
  Trace second = WithWork();
  second.steps = {{"second", Nanos(0), Nanos(190), 0}};
  const TraceComparison found = Compare(second, all);
  EXPECT_EQ(found.phases[0].measured_time, Nanos(20));
  EXPECT_EQ(found.phases[1].measured_time, Nanos(25));
}

TEST(CompareTraces, slowerKernelsAreToldFromContentionAndWaiting) {
  Trace predicted = Play(TwoMicrobatches());
  predicted.streams = {{"compute", "compute"}, {"nccl", "collective"}};
  predicted.strings = {"layers.0.gemm", "layers.1.gemm", "reduce"};
  predicted.slices = {{0, TraceStringId{0}, Nanos(0), Nanos(10)},
                      {0, TraceStringId{1}, Nanos(10), Nanos(20)},
                      {1, TraceStringId{2}, Nanos(10), Nanos(15)}};
  predicted.step = Nanos(30);
  Trace measured = predicted;
  measured.slices[0].end = Nanos(14);                                // 4 slower, alone
  measured.slices[1] = {0, TraceStringId{1}, Nanos(14), Nanos(30)};  // 6 slower beside the reduction
  measured.slices[2] = {1, TraceStringId{2}, Nanos(16), Nanos(26)};
  measured.step = Nanos(45);
  const TraceComparison found = Compare(predicted, measured);
  ASSERT_THAT(found.time, SizeIs(3));
  EXPECT_EQ(found.time[0].kind, "contention");
  EXPECT_EQ(found.time[0].error, Nanos(-6));
  EXPECT_THAT(found.time[0].operators, testing::ElementsAre("layers.*.gemm"));
  EXPECT_EQ(found.time[1].kind, "waiting");  // 45 - 30 busy against 30 - 20
  EXPECT_EQ(found.time[1].error, Nanos(-5));
  EXPECT_EQ(found.time[2].kind, "kernels");
  EXPECT_EQ(found.time[2].error, Nanos(-4));
}

}  // namespace
}  // namespace tidemark::compare_test
