// SPDX-License-Identifier: Apache-2.0
// What windows of attention do to a step, and keys of theirs that change nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <variant>

#include "sim/predict/predict.h"
#include "tests/sim/idle_options.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::sliding_window_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Job JobOf(std::int64_t window, std::int64_t every) {
  Job job = OracleJob("ddp-last", 4);
  auto& decoder = std::get<Decoder>(job.network.shape);
  decoder.sliding_window = window;
  decoder.full_attention_every = every;
  return job;
}

TEST(SlidingWindow, TakesTimeFromAStepAndNoMemory) {
  const Job without = JobOf(0, 0);
  const Prediction all = *Predict(without, {}), none = *Predict(JobOf(without.sequence_length / 8, 0), {}),
                   some = *Predict(JobOf(without.sequence_length / 8, 2), {});
  EXPECT_EQ(none.roles.front().peak.allocated, all.roles.front().peak.allocated);
  EXPECT_LT(none.steps.front().time, some.steps.front().time);
  EXPECT_LT(some.steps.front().time, all.steps.front().time);
}

TEST(SlidingWindowLints, NameWindowsThatHideNothing) {
  Job job = JobOf(0, 0);
  job.sources["network.sliding_window"] = "--set";
  EXPECT_THAT(IdleOptionsOf(job), IsEmpty());  // takes those of a network of the zoo away
  std::get<Decoder>(job.network.shape).sliding_window = job.sequence_length;
  EXPECT_THAT(IdleOptionsOf(job), ElementsAre(HasSubstr("sliding_window changes nothing")));
  job.sources.clear();  // the network's own
  EXPECT_THAT(IdleOptionsOf(job), IsEmpty());
  std::get<Decoder>(job.network.shape).sliding_window = job.sequence_length - 1;
  job.sources["network.sliding_window"] = "--set";
  EXPECT_THAT(IdleOptionsOf(job), IsEmpty());
}

TEST(SlidingWindowLints, NameWindowsOfAKernelThatMakesAllScores) {
  Job job = JobOf(64, 0);
  std::get<Decoder>(job.network.shape).attention_kernel = Decoder::AttentionKernel::eager;
  EXPECT_THAT(IdleOptionsOf(job), IsEmpty());
  job.sources["network.sliding_window"] = "--set";
  EXPECT_THAT(IdleOptionsOf(job), ElementsAre(HasSubstr("neither bytes nor times")));
}

TEST(SlidingWindowLints, NameLayersWithoutAWindowThatAreNotThere) {
  Job job = JobOf(0, 2);
  EXPECT_THAT(IdleOptionsOf(job), IsEmpty());
  job.sources["network.full_attention_every"] = "--set";
  EXPECT_THAT(IdleOptionsOf(job), ElementsAre(HasSubstr("no layer has a window")));
  Job of_four = JobOf(64, 5);
  of_four.sources = job.sources;
  EXPECT_THAT(IdleOptionsOf(of_four), ElementsAre(HasSubstr("fewer layers")));
  std::get<Decoder>(of_four.network.shape).full_attention_every = 4;
  EXPECT_THAT(IdleOptionsOf(of_four), IsEmpty());
}

}  // namespace
}  // namespace tidemark::sliding_window_test
