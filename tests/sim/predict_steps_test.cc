// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "models/job/read.h"
#include "sim/predict/predict.h"
#include "sim/predict/trace_recorder.h"
#include "sim/program/text.h"
#include "tests/property/random_job.h"
#include "tests/sim/dice.h"
#include "tests/sim/oracle_job.h"

// Several optimizer steps in a row: predict --steps K.

namespace tidemark::predict_steps_test {
namespace {

using testing::HasSubstr;

Prediction Predicted(const Job& job, std::int64_t steps, Engine engine = Engine::simulate) {
  PredictOptions options;
  options.steps = FirstSteps(steps);
  options.engine = engine;
  Result<Prediction> prediction = Predict(job, options);
  EXPECT_TRUE(prediction.ok()) << job.strategy << ": " << prediction.error().Text() << "\n" << JobYaml(job);
  return std::move(*prediction);
}

MemoryPeak PeakOf(const Job& job, StepKind kind) {
  PredictOptions options;
  options.steps = {{kind, 1}};
  const Result<Prediction> prediction = Predict(job, options);
  EXPECT_TRUE(prediction.ok());
  return prediction->roles[0].peak;
}

/// Both engines must say the same of all steps together.
void ExpectEnginesAgree(const Job& job, std::int64_t steps) {
  const Prediction simulated = Predicted(job, steps);
  const Prediction closed = Predicted(job, steps, Engine::closed_form);
  EXPECT_EQ(simulated.time, closed.time) << job.strategy << ", " << steps << " steps";
  for (std::size_t i = 0; i < simulated.roles.size(); ++i) {
    EXPECT_EQ(simulated.roles[i].peak, closed.roles[i].peak) << job.strategy << ", " << steps << " steps";
    EXPECT_EQ(simulated.roles[i].peak_step, closed.roles[i].peak_step);
    EXPECT_EQ(Verify(*simulated.roles[i].trace), "") << job.strategy << ", " << steps << " steps";
  }
}

TEST(Steps, AreTheFirstTheSecondAndThenSteadyOnes) {
  const auto kinds = [](std::int64_t steps) {
    std::string text;
    for (const StepRun& run : FirstSteps(steps)) {
      text += std::string(Name(run.kind)) + " x" + std::to_string(run.count) + " ";
    }
    return text;
  };
  EXPECT_EQ(kinds(1), "first x1 ");
  EXPECT_EQ(kinds(2), "first x1 second x1 ");
  EXPECT_EQ(kinds(3), "first x1 second x1 steady x1 ");
  EXPECT_EQ(kinds(5), "first x1 second x1 steady x3 ");
}

TEST(Steps, TimesAddUpAndThePeakIsTheHighestOfThem) {
  for (const char* strategy : {"ddp-last", "fsdp2-scatter-each", "nanotron", "deepspeed-zero2"}) {
    const Job job = OracleJob(strategy, 4);
    const Prediction five = Predicted(job, 5);
    Nanos sum;
    Bytes highest;
    for (const StepPrediction& step : five.steps) {
      sum += step.time * step.run.count;
      highest = std::max(highest, PeakOf(job, step.run.kind).allocated);
    }
    EXPECT_EQ(five.time.step, sum) << strategy;
    EXPECT_EQ(five.roles[0].peak.allocated, highest) << strategy;
    const StepTime& time = five.time;
    EXPECT_EQ(time.step,
              time.compute + time.recompute + time.optimizer + time.exposed_communication + time.bubble + time.host);
  }
}

TEST(Steps, MomentsOfTheFirstStepMakeTheSecondOnePeakHigher) {
  // Without recomputation the backward pass holds what the forward pass saved; the moments join from the first update
  // on, so the first step that has both is the second, and later ones are equally high.
  const Prediction five = Predicted(OracleJob("nanotron", 4), 5);
  EXPECT_EQ(five.roles[0].peak_step, 1);
  EXPECT_EQ(five.steps[1].allocated, five.steps[2].allocated);
  EXPECT_LT(five.steps[0].allocated, five.steps[1].allocated);
}

TEST(Steps, CountsOfAllStepsAddUp) {
  const Job job = OracleJob("fsdp2-defer", 2);
  const auto messages = [&](std::int64_t steps) {
    std::int64_t count = 0;
    for (const CommunicationRow& row : Predicted(job, steps, Engine::closed_form).communication) {
      count += row.count;
    }
    return count;
  };
  EXPECT_EQ(messages(7) - messages(6), messages(6) - messages(5));
  EXPECT_GT(messages(2), messages(1));
}

TEST(Steps, TheTraceMarksEachStepWhereTheOneBeforeEnds) {
  const Prediction three = Predicted(OracleJob("ddp-last", 2), 3);
  const Trace& trace = *three.roles[0].trace;
  ASSERT_EQ(trace.steps.size(), 3U);
  EXPECT_EQ(trace.steps[0].kind, "first");
  EXPECT_EQ(trace.steps[1].kind, "second");
  EXPECT_EQ(trace.steps[2].kind, "steady");
  Nanos end;
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(trace.steps[i].begin, end);
    end = trace.steps[i].end;
    EXPECT_EQ(end - trace.steps[i].begin, three.steps[i].time);
    EXPECT_GE(trace.memory.at(trace.steps[i].memory_begin).issue, trace.steps[i].begin);
  }
  EXPECT_EQ(end, trace.step);
  EXPECT_EQ(end, three.time.step);
}

TEST(Steps, WhatOneStepLeavesIsNotAllocatedAgain) {
  const Prediction prediction = Predicted(OracleJob("nanotron", 2), 4);
  const Trace& trace = *prediction.roles[0].trace;
  std::map<std::string, std::int64_t> allocated;
  for (const MemoryEvent& event : trace.memory) {
    allocated[trace.tensors[event.tensor.index].name] += event.alloc ? 1 : 0;
  }
  EXPECT_EQ(allocated["weight of layer.gate_up"], 4);  // one a layer
  EXPECT_EQ(allocated["second moment of layer.gate_up"], 4);
}

TEST(Steps, TheAllocatorKeepsItsCacheFromStepToStep) {
  const Prediction prediction = Predicted(OracleJob("ddp-last", 4), 4);
  const Trace& trace = *prediction.roles[0].trace;
  for (std::size_t i = 1; i < trace.steps.size(); ++i) {
    const MemoryEvent& last = trace.memory[trace.steps[i].memory_begin - 1];
    const MemoryEvent& next = trace.memory[trace.steps[i].memory_begin];
    EXPECT_GT(last.reserved_bytes, last.allocator_bytes);
    EXPECT_GE(next.reserved_bytes, last.reserved_bytes);
  }
  EXPECT_GE(*prediction.roles[0].reserved, *Predicted(OracleJob("ddp-last", 4), 1).roles[0].reserved);
}

TEST(Steps, BothEnginesAgreeOnSeveralJobs) {
  for (const char* strategy : {"ddp-last", "ddp-every", "fsdp1", "fsdp2-scatter-each", "fsdp2-defer", "nanotron",
                               "deepspeed-zero1", "deepspeed-zero3", "colossalai-zero2", "colossalai-gemini"}) {
    Job job = OracleJob(strategy, 3);
    std::get<Decoder>(job.network.shape).layers = 9;
    for (const std::int64_t steps : {1, 2, 3, 5}) {
      ExpectEnginesAgree(job, steps);
    }
  }
}

TEST(Steps, OfRandomJobsFitTogetherAndBothEnginesAgree) {
  JobGenerator jobs(41);
  for (int i = 0; i < Rounds(400); ++i) {
    const Job job = jobs.Next();
    ExpectEnginesAgree(job, job.last_window.microbatches > 0 ? 1 : 1 + i % 5);
    ASSERT_FALSE(testing::Test::HasFailure()) << "job " << i;
  }
}

TEST(Steps, OfTheLastWindowOfAnEpochAreRefusedBecauseItComesOnce) {
  Job job = OracleJob("ddp-last", 4);
  job.last_window.microbatches = 2;
  PredictOptions options;
  options.steps = FirstSteps(2);
  const Result<Prediction> prediction = Predict(job, options);
  ASSERT_FALSE(prediction.ok());
  EXPECT_THAT(prediction.error().Text(), HasSubstr("the last window of an epoch comes once"));
}

TEST(Steps, TooManyForASimulationAreRefusedButNotForTheClosedForm) {
  PredictOptions options;
  options.steps = FirstSteps(1'000'000);
  const Result<Prediction> prediction = Predict(OracleJob("ddp-last", 4), options);
  ASSERT_FALSE(prediction.ok());
  EXPECT_EQ(prediction.error().code, ErrorCode::bad_input);
  EXPECT_THAT(prediction.error().Text(), HasSubstr("--steps: 1,000,000 steps"));
  EXPECT_EQ(Predicted(OracleJob("ddp-last", 4), 1'000'000, Engine::closed_form).steps.back().run.count, 999'998);
}

Program Keeping(const std::string& buffer) {
  Result<Program> program = ParseProgram(R"(role 0 "only", 1 ranks

streams:
  host  host
  main  compute

buffers:
)" + buffer + "\nprogram:\n");
  EXPECT_TRUE(program.ok()) << program.error().Text();
  return std::move(*program);
}

TEST(Steps, ABufferThatTheNextStepDoesNotExpectIsAFaultOfOurs) {
  const Program first = Keeping("  a[2]  gradient  10  u8  born on main, resident, kept\n");
  for (const char* other :
       {"  b[2]  gradient  10  u8  born on main, resident, kept\n",
        "  a[3]  gradient  10  u8  born on main, resident, kept\n",
        "  a[2]  gradient  11  u8  born on main, resident, kept\n",
        "  a[2]  parameter  10  u8  born on main, resident, kept\n", "  a[2]  gradient  10  u8  born on main\n"}) {
    TraceRecorder recorder({});
    ASSERT_TRUE(recorder.BeginStep(first, "first", Nanos(0)).ok());
    recorder.EndStep(Nanos(5));
    const Program next = Keeping(other);
    const Status status = recorder.BeginStep(next, "second", Nanos(5));
    ASSERT_FALSE(status.ok()) << other;
    EXPECT_EQ(status.error().code, ErrorCode::internal);
  }
}

TEST(InARow, TellsTheRoleThatEndsTheStepsIfItIsTheSameOne) {
  const std::vector<StepRun> runs = {{StepKind::first, 1}, {StepKind::second, 1}};
  const auto role = [&](std::int64_t first, std::int64_t second) {
    std::vector<Evaluation> evaluations(2);
    evaluations[0].time.role = first;
    evaluations[1].time.role = second;
    return InARow(runs, std::move(evaluations)).whole.time.role;
  };
  EXPECT_EQ(role(1, 1), 1);
  EXPECT_EQ(role(0, 1), StepTime::kSeveral);
  EXPECT_EQ(role(1, 0), StepTime::kSeveral);
}

}  // namespace
}  // namespace tidemark::predict_steps_test
