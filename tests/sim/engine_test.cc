// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <string>

#include "sim/engine/closed_form.h"
#include "sim/engine/simulate.h"
#include "sim/program/text.h"
#include "tests/sim/costs_by_hand.h"
#include "tests/sim/dice.h"

// Small programs as text, with durations given by hand: what both engines must say follows on paper.

namespace tidemark::engine_test {
namespace {

constexpr const char* kHead = R"(role 0 "only", 1 ranks

groups:
  dp  2 ranks, 2 per node

streams:
  host  host
  main  compute
  comm  collective

events:
  made
  reduced

buffers:
  a[8]  activation  10  u8  born on main
  w     parameter    5  u8  born on main, resident, kept

program:
)";

Program Parsed(const std::string& body) {
  Result<Program> program = ParseProgram(kHead + body);
  EXPECT_TRUE(program.ok()) << program.error().Text();
  return std::move(*program);
}

/// What both engines say; they must say the same.
Evaluation Evaluate(const StepProgram& step, std::int64_t issue_ns) {
  std::vector<Costs> costs;
  for (const Program& program : step.roles) {
    costs.push_back(CostsByHand(program, issue_ns));
  }
  const Evaluation simulated = Simulate(step, costs);
  EXPECT_EQ(simulated, EvaluateClosedForm(step, costs));
  return simulated;
}

Evaluation EvaluateText(const std::string& body, std::int64_t issue_ns = 1) {
  return Evaluate(StepProgram{{Parsed(body)}}, issue_ns);
}

const std::string kKernel = "compute k pointwise() on main\n";
const std::string kSideKernel = "compute k pointwise() on comm\n";
const std::string kAllReduce = "all_reduce g 4 fp32 sum over dp on comm\n";

TEST(EngineMemory, ThePeakIsTheFirstInstantOfTheHighestTotal) {
  const Evaluation evaluation = EvaluateText(R"(  begin forward
  alloc a[0]
  alloc a[1]
  free a[1]
  end forward
  begin backward
  alloc a[2]
  free a[2]
  free a[0]
  end backward
)");
  EXPECT_EQ(evaluation.roles[0].allocated, Bytes(25));
  EXPECT_EQ(evaluation.roles[0].by_category[Category::activation], Bytes(20));
  EXPECT_EQ(evaluation.roles[0].by_category[Category::parameter], Bytes(5));
  EXPECT_EQ(evaluation.roles[0].phase, Phase::forward);
}

TEST(EngineMemory, ALoopThatGrowsPeaksInItsLastIteration) {
  const Evaluation evaluation = EvaluateText(R"(  repeat i 0..5 x6 {
    alloc a[i]
  }
  repeat i 5..0 x6 {
    alloc a[(i+1)%7]
    free a[(i+1)%7]
    free a[i]
  }
)");
  // Six in the first loop; the second allocates a[6] beside them once, then one less each time.
  EXPECT_EQ(evaluation.roles[0].allocated, Bytes(5 + 60 + 10));
}

TEST(EngineMemory, WithoutAllocationsThePeakIsWhatIsResident) {
  EXPECT_EQ(EvaluateText("").roles[0].allocated, Bytes(5));
}

TEST(EngineTime, KernelsOfOneStreamRunOneAfterTheOther) {
  const StepTime time = EvaluateText(kKernel + kKernel).time;
  // The host issues the first at 1 ns: that nanosecond is the host's.
  EXPECT_EQ(time.step, Nanos(201));
  EXPECT_EQ(time.compute, Nanos(200));
  EXPECT_EQ(time.host, Nanos(1));
}

TEST(EngineTime, ASlowHostStarvesTheDevice) {
  const StepTime time = EvaluateText("  repeat i 0..9 x10 {\n    compute k pointwise() on main\n  }\n", 150).time;
  // Issued every 150 ns, done 100 ns later.
  EXPECT_EQ(time.step, Nanos(10 * 150 + 100));
  EXPECT_EQ(time.host, Nanos(10 * 150 + 100 - 1000));
}

TEST(EngineTime, ACollectiveBesideAKernelIsExposedOnlyWhereItIsLonger) {
  const StepTime time = EvaluateText(R"(  compute k pointwise() on main
  record made on main
  wait made on comm
  all_reduce g 4 fp32 sum over dp on comm
  record reduced on comm
  compute k pointwise() on main
  wait reduced on main
  compute k pointwise() on main
)")
                            .time;
  // Kernel 1..101, collective 101..351, second kernel 101..201, third waits until 351.
  EXPECT_EQ(time.step, Nanos(451));
  EXPECT_EQ(time.compute, Nanos(300));
  EXPECT_EQ(time.exposed_communication, Nanos(150));
}

// Where a rank has one thread for all streams (Machine::overlap: false) nothing is hidden.
TEST(EngineTime, StreamsTakeTurnsOnOneThread) {
  const Program program = Parsed(R"(  compute k pointwise() on main
  record made on main
  wait made on comm
  compute k pointwise() on comm
  all_reduce g 4 fp32 sum over dp on comm
  record reduced on comm
  compute k pointwise() on main
  wait reduced on main
  compute k pointwise() on main
)");
  Costs costs = CostsByHand(program, 1);
  costs.streams_take_turns = true;
  const StepProgram step{{program}};
  const std::vector<Costs> all{costs};
  const Evaluation evaluation = Simulate(step, all);
  EXPECT_EQ(evaluation, EvaluateClosedForm(step, all));
  // Kernel 1..101, the other stream's 101..201, collective 201..451, then the two kernels.
  EXPECT_EQ(evaluation.time.step, Nanos(651));
  EXPECT_EQ(evaluation.time.compute, Nanos(400));
  EXPECT_EQ(evaluation.time.exposed_communication, Nanos(250));
}

TEST(EngineTime, TheHostMayWaitForAStream) {
  const StepTime time = EvaluateText(R"(  all_reduce g 4 fp32 sum over dp on comm
  sync stream comm
  compute k pointwise() on main
)")
                            .time;
  // The host goes on at 251 and issues the kernel at 252. Until 251 it waits for a collective, and so does the kernel.
  EXPECT_EQ(time.step, Nanos(352));
  EXPECT_EQ(time.exposed_communication, Nanos(251));
  EXPECT_EQ(time.host, Nanos(1));
}

TEST(EngineTime, AKernelOnACollectivesStreamIsWaitedForAsACollective) {
  const StepTime time = EvaluateText(kAllReduce + kSideKernel + "sync device\n" + kKernel, 300).time;
  // Collective 300..550, the other stream's kernel issued at 600, until 700; the host waits for it, issues at 1000.
  EXPECT_EQ(time.step, Nanos(1100));
  EXPECT_EQ(time.exposed_communication, Nanos(700));
  EXPECT_EQ(time.host, Nanos(300));
}

TEST(EngineTime, ACollectiveThatEndsBeforeTheHostAsksExposesNothing) {
  const StepTime time = EvaluateText(kAllReduce + kKernel + "sync stream comm\n" + kKernel, 300).time;
  // Collective 300..550, kernel 600..700: the host does not wait at 600, and issues the second kernel at 900.
  EXPECT_EQ(time.step, Nanos(1000));
  EXPECT_EQ(time.exposed_communication, Nanos(0));
  EXPECT_EQ(time.host, Nanos(800));
}

TEST(EngineTime, WorkBehindTheLastKernelBelongsToWhatEndsTheStep) {
  const StepTime time = EvaluateText(R"(  compute k pointwise() on main
  record made on main
  wait made on comm
  all_gather g 4 fp32 over dp on comm
)")
                            .time;
  EXPECT_EQ(time.step, Nanos(351));
  EXPECT_EQ(time.exposed_communication, Nanos(250));
}

constexpr const char* kPipeline = R"(groups:
  dp  2 ranks, 2 per node

channels:
  down  role 0 -> role 1
  up    role 1 -> role 0

streams:
  host  host
  main  compute
  comm  collective
  mail  peer

events:
  came
  reduced
  made

buffers:
  a  activation  10  u8  born on main, resident, kept

program:
)";

StepProgram TwoStages(const std::string& first, const std::string& second) {
  StepProgram step;
  for (const std::string& text : {"role 0 \"first\", 1 ranks\n\n" + std::string(kPipeline) + first,
                                  "role 1 \"second\", 1 ranks\n\n" + std::string(kPipeline) + second}) {
    Result<Program> program = ParseProgram(text);
    EXPECT_TRUE(program.ok()) << program.error().Text();
    step.roles.push_back(std::move(*program));
  }
  return step;
}

constexpr const char* kSend = R"(  compute k pointwise() on main
  record made on main
  wait made on mail
  send m a into down on mail
)";

TEST(EngineTime, WaitingForAPeerIsABubbleUntilItsMessageAndCommunicationAfterThat) {
  const StepTime time = Evaluate(TwoStages(kSend, R"(  recv m a from down on mail
  record came on mail
  wait came on main
  record made on main
  wait made on comm
  all_reduce g 4 fp32 sum over dp on comm
  record reduced on comm
  wait reduced on main
  compute k pointwise() on main
)"),
                                 1)
                            .time;
  // The message is sent at 101 and there at 131; the collective runs 131..381, the kernel 381..481.
  EXPECT_EQ(time.step, Nanos(481));
  EXPECT_EQ(time.bubble, Nanos(131));
  EXPECT_EQ(time.exposed_communication, Nanos(250));
  EXPECT_EQ(time.compute, Nanos(100));
}

TEST(EngineTime, LoopsOfTwoStagesAreSteppedTogether) {
  const std::string sender = "  repeat i 0..99 x100 {\n" + std::string(kSend) + "  }\n";
  const std::string receiver = R"(  repeat i 0..99 x100 {
    recv m a from down on mail
    record came on mail
    wait came on main
    compute k pointwise() on main
    compute k pointwise() on main
  }
)";
  const StepTime time = Evaluate(TwoStages(sender, receiver), 1).time;
  // First message at 131; from then on the second stage is busy without a gap: 100 times two kernels.
  EXPECT_EQ(time.step, Nanos(131 + 100 * 200));
  EXPECT_EQ(time.bubble, Nanos(131));
}

TEST(EngineTime, AQueueThatDrainsSlowlyIsLeaptOverInItsParts) {
  // The collective stream gets 250 ns of work for 240 ns of kernels: its lead of 10 ns an iteration adds up unseen and
  // is exposed at the end. Nothing about one iteration shows the total.
  const StepTime time = EvaluateText(R"(  repeat i 0..999 x1000 {
    compute k pointwise() on main
    compute k pointwise() on main
    record made on main
    wait made on comm
    all_reduce g 4 fp32 sum over dp on comm
    record reduced on comm
  }
  wait reduced on main
  compute k pointwise() on main
)")
                            .time;
  // First collective from 201 on, then back to back: 201 + 1000 * 250; kernels end at 200,001.
  EXPECT_EQ(time.step, Nanos(201 + 250'000 + 100));
  EXPECT_EQ(time.exposed_communication, Nanos(201 + 250'000 - 200'001));
}

/// A random loop nest over three streams, so that regimes change inside loops.
std::string RandomBody(Dice& dice, int depth, int& loops) {
  std::string body;
  const std::int64_t lines = dice.Number(1, 6);
  for (std::int64_t i = 0; i < lines; ++i) {
    switch (dice.Roll(depth > 0 ? 8 : 6)) {
      case 0:
      case 1:
        body += "compute k pointwise() on main\n";
        break;
      case 2:
        body += "all_reduce g 4 fp32 sum over dp on comm\n";
        break;
      case 3:
        body += dice.OneIn(2) ? "record made on main\nwait made on comm\n" : "record reduced on comm\n";
        break;
      case 4:
        body += "record reduced on comm\nwait reduced on main\n";
        break;
      case 5:
        body += dice.OneIn(3)   ? "sync stream comm\n"
                : dice.OneIn(6) ? "sync device\n"
                                : "compute k pointwise() on comm\n";
        break;
      default: {
        const std::int64_t count = dice.Number(1, 40);
        body += "repeat l" + std::to_string(loops++) + " 0.." + std::to_string(count - 1) + " x" +
                std::to_string(count) + " {\n" + RandomBody(dice, depth - 1, loops) + "}\n";
      }
    }
  }
  return body;
}

TEST(EngineTime, RandomLoopNestsWithRandomCostsAreTimedExactly) {
  Dice dice(5);
  for (int i = 0; i < 2000; ++i) {
    int loops = 0;
    const Program program = Parsed("record made on main\nrecord reduced on comm\n" + RandomBody(dice, 3, loops));
    Costs costs = CostsByHand(program, dice.Number(0, 200));
    for (Nanos& duration : costs.device) {
      duration = duration == Nanos(0) ? duration : Nanos(dice.Number(0, 300));
    }
    costs.streams_take_turns = dice.OneIn(3);
    const StepProgram step{{program}};
    const std::vector<Costs> all{costs};
    ASSERT_EQ(Simulate(step, all), EvaluateClosedForm(step, all)) << Print(program);
  }
}

}  // namespace
}  // namespace tidemark::engine_test
