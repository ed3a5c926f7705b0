// SPDX-License-Identifier: Apache-2.0
#include "reports/summarise/instants.h"
#include "traces/trace.h"

#include <gtest/gtest.h>

namespace tidemark::instants_test {
namespace {

/// Two microbatches and an update on paper. Bytes alive after each event in brackets, w is 100:
///   before     +w 100 [100]
///   forward 0  +a0 30 [130]  +l 40 [170]
///   backward 0 +t 5 [175]  -l [135]  +g 20 [155]  -t [150]  -a0 [120]
///   forward 1  +a1 30 [150]  +l 40 [190]
///   backward 1 +t 5 [195]  -l [155]  -t [150]  -a1 [120]      reduce: after -l
///   optimizer  +s 50 [170]  -s [120]
///   gather     (nothing)
///   zero       -g [100]
class OnPaper {
 public:
  OnPaper() {
    trace_.tensors = {
        {"w", Category::parameter, DType::bf16, Bytes(100)}, {"a", Category::activation, DType::bf16, Bytes(30)},
        {"l", Category::logits, DType::fp32, Bytes(40)},     {"t", Category::activation, DType::bf16, Bytes(5)},
        {"g", Category::gradient, DType::fp32, Bytes(20)},   {"s", Category::workspace, DType::fp32, Bytes(50)}};
    trace_.steps = {{"steady", Nanos(0), Nanos(1000), 0}};
    Add(true, 0, 0);
    Begin("forward", 0);
    Add(true, 1, 0);
    Add(true, 2, 0);
    Begin("backward", 0);
    Add(true, 3, 0);
    Add(false, 2, 0);
    Add(true, 4, 0);
    Add(false, 3, 0);
    Add(false, 1, 0);
    Begin("forward", 1);
    Add(true, 1, 1);
    Add(true, 2, 0);
    Begin("backward", 1);
    Add(true, 3, 0);
    Add(false, 2, 0);
    trace_.marks = {{"reduce", trace_.memory.size()}};
    Add(false, 3, 0);
    Add(false, 1, 1);
    Begin("optimizer", -1);
    Add(true, 5, 0);
    Add(false, 5, 0);
    Begin("gather", -1);
    Begin("zero", -1);
    Add(false, 4, 0);
  }

  Trace& trace() { return trace_; }

 private:
  void Begin(const char* phase, std::int64_t microbatch) {
    now_ += 10;
    trace_.spans.push_back({phase, microbatch, Nanos(now_), Nanos(now_ + 9)});
  }
  void Add(bool alloc, std::uint32_t tensor, std::int32_t member) {
    MemoryEvent event;
    event.alloc = alloc;
    event.tensor = TensorNameId{tensor};
    event.index0 = member;
    event.issue = Nanos(++now_);
    event.span = trace_.spans.empty() ? kNoSpan : static_cast<std::uint16_t>(trace_.spans.size() - 1);
    trace_.memory.push_back(event);
  }

  Trace trace_;
  std::int64_t now_ = 0;
};

const Instant* Find(const std::vector<Instant>& instants, const std::string& name) {
  for (const Instant& instant : instants) {
    if (instant.name == name) {
      return &instant;
    }
  }
  return nullptr;
}

void ExpectInstant(const std::vector<Instant>& all, const std::string& name, std::int64_t bytes,
                   const std::string& place) {
  const Instant* instant = Find(all, name);
  ASSERT_NE(instant, nullptr) << name;
  EXPECT_EQ(instant->allocated, Bytes(bytes)) << name;
  EXPECT_EQ(PhaseLabel(instant->place), place) << name;
  EXPECT_EQ(instant->by_category.Total(), instant->allocated) << name;
}

TEST(Instants, ofPassesThatRepeatAreThoseAtWhichMostIsAlive) {
  const std::vector<Instant> all = FindInstants(OnPaper().trace());
  ExpectInstant(all, "end of forward", 190, "forward 1");
  ExpectInstant(all, "start of backward", 195, "backward 1");
  ExpectInstant(all, "loss", 195, "backward 1");
}

TEST(Instants, ofTheWindowsEndAreThoseBeforeTheOptimizerFreesOrAllocatesAnything) {
  const std::vector<Instant> all = FindInstants(OnPaper().trace());
  ExpectInstant(all, "window end", 120, "backward 1");
  ExpectInstant(all, "optimizer, later steps", 170, "optimizer");
}

TEST(Instants, areMarkedWhereNoPhaseTellsThem) {
  ExpectInstant(FindInstants(OnPaper().trace()), "reduce", 155, "backward 1");
}

TEST(Instants, thatATraceWasCutOffBeforeAreAbsent) {
  OnPaper paper;
  paper.trace().marks = {{"reduce", 1000}};
  EXPECT_EQ(Find(FindInstants(paper.trace()), "reduce"), nullptr);
}

TEST(Instants, ofAPhaseThatAllocatesNothingHoldWhatWasLeft) {
  ExpectInstant(FindInstants(OnPaper().trace()), "gather", 120, "gather");
}

TEST(Instants, ofAFirstStepAreTheOptimizersFirst) {
  OnPaper paper;
  paper.trace().steps.front().kind = "first";
  ExpectInstant(FindInstants(paper.trace()), kOptimizerFirst, 170, "optimizer");
  EXPECT_EQ(Find(FindInstants(paper.trace()), kOptimizerLater), nullptr);
  paper.trace().steps.clear();
  ExpectInstant(FindInstants(paper.trace()), "optimizer", 170, "optimizer");
}

TEST(Instants, thatATraceDoesNotHaveAreAbsent) {
  const std::vector<Instant> all = FindInstants(OnPaper().trace());
  EXPECT_EQ(Find(all, "clip"), nullptr);
  EXPECT_TRUE(FindInstants(Trace()).empty());
}

TEST(Instants, nameWhatIsAliveLargestFirst) {
  const std::vector<Instant> all = FindInstants(OnPaper().trace());
  const Instant* end = Find(all, "end of forward");
  ASSERT_NE(end, nullptr);
  ASSERT_EQ(end->live.size(), 4U);  // w 100, l 40, a 30, g 20
  EXPECT_EQ(end->live[0].name, "w");
  EXPECT_EQ(end->live[1].name, "l");
  EXPECT_EQ(end->live[2].bytes, Bytes(30));
  EXPECT_EQ(end->live[3].name, "g");
}

}  // namespace
}  // namespace tidemark::instants_test
