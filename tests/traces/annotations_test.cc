// SPDX-License-Identifier: Apache-2.0
#include "traces/formats/annotations.h"

#include <gtest/gtest.h>

#include <string>

namespace tidemark::annotations_test {
namespace {

using Kind = AnnotationText::Kind;

void ExpectText(const std::string& text, Kind kind, const std::string& name, std::int64_t number) {
  const AnnotationText read = ReadAnnotation(text);
  EXPECT_EQ(read.kind, kind) << text;
  EXPECT_EQ(read.name, name) << text;
  EXPECT_EQ(read.number, number) << text;
}

TEST(Annotations, wordsOfPhasesAreFoundInWhatUsersAndFrameworksWrite) {
  ExpectText("microbatch 1 forward", Kind::phase, "forward", 1);
  ExpectText("backward", Kind::phase, "backward", -1);
  ExpectText("## Backward ##", Kind::phase, "backward", -1);
  ExpectText("DistributedDataParallel.forward", Kind::phase, "forward", -1);
  ExpectText("mb3-forward", Kind::phase, "forward", 3);
  ExpectText("micro_batch_12_backward", Kind::phase, "backward", 12);
  ExpectText("microbatch 2", Kind::phase, "microbatch", 2);
  ExpectText("Optimizer.step#AdamW.step", Kind::phase, "optimizer", -1);
  ExpectText("optimizer", Kind::phase, "optimizer", -1);
}

TEST(Annotations, stepsAreNoPhases) {
  ExpectText("ProfilerStep#17", Kind::step, "profilerstep", 17);
  ExpectText("step 0", Kind::step, "step", 0);
  ExpectText("step", Kind::other, "step", -1);
  ExpectText("lr scheduler step 3", Kind::other, "lr scheduler step", 3);
}

TEST(Annotations, othersKeepTheirTextAndTheNumberAtItsEnd) {
  ExpectText("Optimizer.zero_grad#AdamW.zero_grad", Kind::other, "Optimizer.zero_grad#AdamW.zero_grad", -1);
  ExpectText("layers.31", Kind::other, "layers", 31);
  ExpectText("layer 0", Kind::other, "layer", 0);
  ExpectText("42", Kind::other, "42", -1);
  ExpectText("id 99999999999", Kind::other, "id 99999999999", -1);  // counts nothing
  ExpectText("", Kind::other, "", -1);
}

TEST(Timeline, aPlaceIsTheInnermostPhaseAndWhatIsInsideIt) {
  const Timeline timeline({{"layer 3", Nanos(20), Nanos(30)},
                           {"microbatch 1", Nanos(0), Nanos(100)},
                           {"forward", Nanos(10), Nanos(40)},
                           {"data", Nanos(110), Nanos(120)}});
  Timeline::Cursor cursor(timeline);
  EXPECT_EQ(timeline.spans()[cursor.At(Nanos(5)).span].phase, "microbatch");
  const Timeline::Place place = cursor.At(Nanos(25));
  EXPECT_EQ(timeline.spans()[place.span].phase, "forward");
  EXPECT_EQ(timeline.spans()[place.span].microbatch, 1);  // of what surrounds it
  ASSERT_NE(place.inside, nullptr);
  EXPECT_EQ(place.inside->name, "layer");
  EXPECT_EQ(place.inside->number, 3);
  EXPECT_EQ(cursor.At(Nanos(40)).inside, nullptr);
  EXPECT_EQ(cursor.At(Nanos(105)).span, kNoSpan);
  const Timeline::Place alone = cursor.At(Nanos(115));
  EXPECT_EQ(timeline.spans()[alone.span].phase, "data");
  EXPECT_EQ(alone.inside, nullptr);
}

TEST(Timeline, theProfilersStepsGoBeforeThoseOfTheProgram) {
  const Timeline both({{"step 0", Nanos(0), Nanos(9)}, {"ProfilerStep#2", Nanos(1), Nanos(5)}});
  ASSERT_EQ(both.steps().size(), 1U);
  EXPECT_EQ(both.steps()[0].begin, Nanos(1));
  const Timeline inside(
      {{"step 0", Nanos(0), Nanos(9)}, {"step 1", Nanos(2), Nanos(5)}, {"step 2", Nanos(9), Nanos(12)}});
  ASSERT_EQ(inside.steps().size(), 2U);
  EXPECT_EQ(inside.steps()[1].begin, Nanos(9));
}

TEST(Timeline, whereThereAreTooManyOnlyPhasesAreSpans) {
  std::vector<Annotation> many = {{"forward", Nanos(0), Nanos(200000)}};
  for (int i = 0; i < 70000; ++i) {
    many.push_back({"layer 3", Nanos(2 * i), Nanos(2 * i + 1)});
  }
  const Timeline timeline(many);
  EXPECT_EQ(timeline.spans().size(), 1U);
  EXPECT_EQ(timeline.left_out(), 0U);
  const Timeline::Place place = Timeline::Cursor(timeline).At(Nanos(139998));
  EXPECT_EQ(place.span, 0U);
  ASSERT_NE(place.inside, nullptr);
  EXPECT_EQ(place.inside->number, 3);
}

TEST(Timeline, phasesBeyondWhatATraceHoldsAreLeftOutAndCounted) {
  std::vector<Annotation> many;
  for (int i = 0; i < 70000; ++i) {
    many.push_back({"forward", Nanos(2 * i), Nanos(2 * i + 1)});
  }
  const Timeline timeline(many);
  EXPECT_EQ(timeline.spans().size(), 65535U);
  EXPECT_EQ(timeline.left_out(), 70000U - 65535U);
}

}  // namespace
}  // namespace tidemark::annotations_test
