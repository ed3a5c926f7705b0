// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "sim/lower/lower.h"
#include "sim/program/gradient_value.h"
#include "sim/program/text.h"
#include "sim/program/verify.h"
#include "sim/program/verify_gradients.h"
#include "tests/sim/oracle_job.h"

namespace tidemark::verify_gradients_test {
namespace {

using ::testing::HasSubstr;
using Rule = Finding::Rule;
using Axis = GradientValue::Axis;

StepProgram Lowered(const Job& job) {
  Result<StepProgram> step = Lower(job, StepKind::steady);
  EXPECT_TRUE(step.ok()) << step.error().Text();
  return *std::move(step);
}

/// The lowered program of a two-layer model. `strategy`'s own order and factors are what the tests below spoil.
StepProgram ProgramOf(const std::string& strategy, std::int64_t microbatches) {
  Job job = OracleJob(strategy, microbatches);
  if (auto* encoders = std::get_if<DualEncoder>(&job.network.shape)) {
    encoders->first.layers = encoders->second.layers = 2;
  } else {
    std::get<Decoder>(job.network.shape).layers = 2;
  }
  if (!FindStrategy(strategy)->Accept(job).ok()) {
    job.axes.shard.replicas = 2;  // of a system that is about replicas
  }
  return Lowered(job);
}

bool IsNamed(const Program& program, const Node& node, std::string_view name) {
  const auto* compute = std::get_if<Compute>(&node);
  return compute != nullptr && program.names[compute->name.index] == name;
}

/// Changes the nodes for which `change` says so, and returns how many.
template <class Change>
int Spoil(StepProgram& step, Change change) {
  int changed = 0;
  for (Node& node : step.roles.front().nodes) {
    changed += change(step.roles.front(), node) ? 1 : 0;
  }
  return changed;
}

/// Rules that are broken, and one message.
std::pair<Rule, std::string> FirstOf(const StepProgram& step) {
  const std::vector<Finding> findings = Verify(step);
  EXPECT_FALSE(findings.empty());
  return findings.empty() ? std::pair<Rule, std::string>{} : std::pair{findings.front().rule, findings.front().message};
}

TEST(VerifyGradients, AcceptsWhatRealSystemsDo) {
  for (const Strategy& strategy : AllStrategies()) {
    if (strategy.DeclaredWrong(OracleJob(strategy.defaults.name, 2)).has_value()) {
      continue;
    }
    for (const std::int64_t microbatches : {1, 2, 3}) {
      const std::vector<Finding> findings = Verify(ProgramOf(strategy.defaults.name, microbatches));
      EXPECT_TRUE(findings.empty()) << strategy.defaults.name << ": " << findings.front().message;
    }
  }
}

TEST(VerifyGradients, AMissingLossFactorIsFound) {
  StepProgram step = ProgramOf("ddp-last", 3);
  EXPECT_EQ(Spoil(step,
                  [](const Program&, Node& node) {
                    auto* compute = std::get_if<Compute>(&node);
                    const bool begins = compute != nullptr && compute->scale == Rational(1, 3);
                    if (begins) {
                      compute->scale = Rational(1);
                    }
                    return begins;
                  }),
            3);  // microbatches 0, 1 and 2 are each written out
  const auto [rule, message] = FirstOf(step);
  EXPECT_EQ(rule, Rule::wrong_factor);
  EXPECT_THAT(message, HasSubstr("factor 1/4 on behalf of this rank and 1/4 of another, not 1/12"));
}

TEST(VerifyGradients, ASumWhereAnAverageBelongsIsFound) {
  StepProgram step = ProgramOf("fsdp2-scatter-each", 2);
  EXPECT_GT(Spoil(step,
                  [](const Program&, Node& node) {
                    auto* collective = std::get_if<Collective>(&node);
                    const bool averages = collective != nullptr && collective->reduction == Reduction::avg;
                    if (averages) {
                      collective->reduction = Reduction::sum;
                    }
                    return averages;
                  }),
            0);
  const auto [rule, message] = FirstOf(step);
  EXPECT_EQ(rule, Rule::wrong_factor);
  EXPECT_THAT(message, HasSubstr("factor 1/2 on behalf of this rank and 1/2 of another, not 1/8"));
}

TEST(VerifyGradients, ReplicasThatAreNotReducedAreFound) {
  StepProgram step = ProgramOf("ddp-last", 1);
  EXPECT_GT(Spoil(step,
                  [](const Program& program, Node& node) {
                    auto* collective = std::get_if<Collective>(&node);
                    const bool reduces = collective != nullptr && program.groups[collective->group.index].name == "dp";
                    if (reduces) {
                      collective->reads.clear();  // reduces something else
                      collective->writes.clear();
                    }
                    return reduces;
                  }),
            0);
  const auto [rule, message] = FirstOf(step);
  EXPECT_EQ(rule, Rule::wrong_factor);
  EXPECT_THAT(message, HasSubstr("and 0 of another"));
}

void OverwriteWhereItAccumulates(StepProgram& step) {
  EXPECT_GT(Spoil(step,
                  [](const Program& program, Node& node) {
                    const bool adds = IsNamed(program, node, "accumulate gradient");
                    if (adds) {
                      std::get<Compute>(node).reads.resize(1);  // the addend only: a copy
                    }
                    return adds;
                  }),
            0);
}

TEST(VerifyGradients, AnAccumulationThatOverwritesLosesAMicrobatch) {
  StepProgram step = ProgramOf("ddp-last", 2);
  OverwriteWhereItAccumulates(step);
  const auto [rule, message] = FirstOf(step);
  EXPECT_EQ(rule, Rule::lost_gradient);
  EXPECT_THAT(message, HasSubstr("of microbatch 0 has not reached the optimizer"));
}

/// The same program, each loop written out, in which the first update stands twice.
StepProgram WithAnUpdateTwice(const StepProgram& step) {
  StepProgram spoiled;
  for (const Program& role : step.roles) {
    Program program = Unroll(role);
    const auto update = std::find_if(program.nodes.begin(), program.nodes.end(), [](const Node& node) {
      const auto* compute = std::get_if<Compute>(&node);
      return compute != nullptr && std::holds_alternative<OptimizerUpdate>(compute->op);
    });
    EXPECT_NE(update, program.nodes.end());
    const Node again = *update;
    program.nodes.insert(update, again);
    spoiled.roles.push_back(std::move(program));
  }
  return spoiled;
}

TEST(VerifyGradients, AGradientThatMovesAWeightTwiceIsFound) {
  for (const Strategy& strategy : AllStrategies()) {
    const StepProgram step = WithAnUpdateTwice(ProgramOf(strategy.defaults.name, 2));
    const std::vector<Finding> findings = Verify(step);
    const bool found = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
      return finding.rule == Rule::wrong_factor && finding.message.find("arrives again") != std::string::npos;
    });
    EXPECT_TRUE(found) << strategy.defaults.name;
  }
}

TEST(VerifyGradients, AGradientThatWasNotZeroedIsFoundInTheNextWindow) {
  Job job = OracleJob("ddp-last", 2);
  std::get<Decoder>(job.network.shape).layers = 2;
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = "True";  // two windows, although the loss is divided by 2
  job.axes.buffers.set_to_none = false;
  StepProgram step = Lowered(job);
  const auto stale = [&] {
    std::vector<std::string> messages;
    for (const Finding& finding : Verify(step)) {
      if (finding.rule == Rule::stale_gradient) {
        messages.push_back(finding.message);
      }
    }
    return messages;
  };
  EXPECT_TRUE(stale().empty());
  EXPECT_GT(Spoil(step,
                  [](const Program& program, Node& node) {
                    const bool zeroes = IsNamed(program, node, "zero gradient");
                    if (zeroes) {
                      std::get<Compute>(node).writes.clear();
                    }
                    return zeroes;
                  }),
            0);
  ASSERT_FALSE(stale().empty());
  EXPECT_THAT(stale().front(), HasSubstr("of microbatch 0, which an earlier window was for"));
}

/// The windows of a program, whatever else is wrong with it.
std::vector<WindowFactor> WindowsOf(const StepProgram& step) {
  Findings unused(100'000);
  return CheckGradients(step, unused);
}

TEST(VerifyGradients, AWindowWhoseOptimizerGetsNothingHasFactorZero) {
  StepProgram step = ProgramOf("ddp-last", 2);
  EXPECT_GT(Spoil(step,
                  [](const Program&, Node& node) {
                    auto* compute = std::get_if<Compute>(&node);
                    const bool updates = compute != nullptr && std::holds_alternative<OptimizerUpdate>(compute->op);
                    if (updates) {
                      compute->reads.clear();
                    }
                    return updates;
                  }),
            0);
  const std::vector<WindowFactor> windows = WindowsOf(step);
  ASSERT_EQ(windows.size(), 1u);
  EXPECT_EQ(windows[0].factor, Rational(0));
  EXPECT_TRUE(windows[0].lost);
  EXPECT_FALSE(windows[0].uniform);
  EXPECT_FALSE(windows[0].right());
}

TEST(VerifyGradients, AMicrobatchThatIsLostLeavesTheOthersPart) {
  StepProgram step = ProgramOf("ddp-last", 2);
  OverwriteWhereItAccumulates(step);
  const std::vector<WindowFactor> windows = WindowsOf(step);
  ASSERT_EQ(windows.size(), 1u);
  EXPECT_EQ(windows[0].factor, Rational(1, 2));
  EXPECT_TRUE(windows[0].lost);
}

// Two windows of one microbatch, divided by 2, of which the first is not zeroed: its gradient is in the second's
// buffer, but the second's own gradient is what its factor measures.
TEST(VerifyGradients, WhatAnEarlierWindowLeftIsNoPartOfAWindowsFactor) {
  Job job = OracleJob("ddp-last", 2);
  std::get<Decoder>(job.network.shape).layers = 2;
  job.axes.sync.when = Sync::When::custom;
  job.axes.sync.expression = "True";
  job.axes.buffers.set_to_none = false;
  StepProgram step = Lowered(job);
  EXPECT_GT(Spoil(step,
                  [](const Program& program, Node& node) {
                    const bool zeroes = IsNamed(program, node, "zero gradient");
                    if (zeroes) {
                      std::get<Compute>(node).writes.clear();
                    }
                    return zeroes;
                  }),
            0);
  const std::vector<WindowFactor> windows = WindowsOf(step);
  ASSERT_EQ(windows.size(), 2u);
  for (const WindowFactor& window : windows) {
    EXPECT_EQ(window.factor, Rational(1, 2));
    EXPECT_TRUE(window.uniform);
  }
}

// One source: microbatches 0 and 1 as a term each, of which the window has the second; then a source that never comes.
TEST(VerifyGradients, TheMeterLeavesOutStaleTermsAndTakesZeroAsTheFarthest) {
  WindowMeter meter(1, 1);
  const Factors whole = Factors::Own(Rational(1), false, false);
  const Factors five = Factors::Own(Rational(5), false, false);
  meter.Read({{7, 0, 0, {five, five}}, {7, 1, 1, {whole, whole}}}, {1}, true);
  meter.Read({{8, 0, 0, {five, five}}}, {1}, true);
  meter.End({1}, true);
  EXPECT_TRUE(meter.windows()[0].right());
  meter.Read({{7, 2, 2, {five, five}}}, {2}, true);
  meter.Miss({{7, 2}, {9, 2}}, {{7, 2}});
  meter.End({2}, true);
  EXPECT_EQ(meter.windows()[1].factor, Rational(0));
}

// Gemini in a chunk that it keeps gathered: a factor N = 4 for each further microbatch, 4^39 of the first of 40.
TEST(VerifyGradients, AFactorThatGrowsBeyondAllNumbersIsAWrongOne) {
  Job job = OracleJob("colossalai-gemini", 40);
  Decoder& decoder = std::get<Decoder>(job.network.shape);
  decoder.layers = 1;
  decoder.vocabulary = 1000;
  const std::vector<Finding> findings = Verify(Lowered(job));
  ASSERT_FALSE(findings.empty());
  bool told = false;
  for (const Finding& finding : findings) {
    EXPECT_EQ(finding.rule, Rule::wrong_factor) << finding.message;
    told |= finding.message.find("too large to tell") != std::string::npos;
  }
  EXPECT_TRUE(told);
}

// The worked example of a reduce-scatter into a slice of its own input, done twice in one window: N = 2, gradients 4
// and 8 in microbatch 1, 2 and 6 in microbatch 2; right is (4 + 8) / 2 + (2 + 6) / 2 = 10.
GradientValue TwiceInPlace(bool scales_buffer) {
  const auto reduce = [&](GradientValue& value) {
    if (scales_buffer) {
      value.Scale(Rational(1, 2));
    }
    value.Reduce(Axis::shards, 2, scales_buffer ? Rational(1) : Rational(1, 2), true);
  };
  GradientValue value = GradientValue::Of(0, 1, Factors::Own(Rational(1), true, false));
  reduce(value);
  value.Add(GradientValue::Of(0, 2, Factors::Own(Rational(1), true, false)));
  reduce(value);
  return value;
}

/// The number in this rank's part: what the two ranks contributed, times their factors.
Rational NumberOf(const GradientValue& value) {
  const Factors& first = value.Find(0, 1)->own;
  const Factors& second = value.Find(0, 2)->own;
  return first.of[0][0] * Rational(4) + first.of[1][0] * Rational(8) + second.of[0][0] * Rational(2) +
         second.of[1][0] * Rational(6);
}

TEST(VerifyGradients, ScatteringTwiceInPlaceIsWrongByTheMeasuredAmounts) {
  EXPECT_EQ(NumberOf(TwiceInPlace(true)), Rational(9));    // the whole buffer scaled by 1/N, then summed
  EXPECT_EQ(NumberOf(TwiceInPlace(false)), Rational(11));  // averaged by the collective: the rest stays unscaled
}

// A buffer that is all-reduced in every microbatch: exact with an average, N times too much of what was reduced before
// with a sum.
TEST(VerifyGradients, ReducingAgainIsExactForAveragesOnly) {
  for (const bool averages : {true, false}) {
    const Rational scale = averages ? Rational(1, 4) : Rational(1);
    GradientValue value = GradientValue::Of(0, 1, Factors::Own(Rational(1), true, false));
    value.Reduce(Axis::shards, 4, scale, false);
    value.Reduce(Axis::shards, 4, scale, false);
    EXPECT_TRUE(value.Find(0, 1)->own.AreAll(averages ? Rational(1, 4) : Rational(4)));
  }
}

// HSDP: an average over 2 shards, then over 3 replicas, is the average over 6 ranks.
TEST(VerifyGradients, TwoAxesMultiply) {
  GradientValue value = GradientValue::Of(0, 0, Factors::Own(Rational(1), true, true));
  value.Reduce(Axis::shards, 2, Rational(1, 2), false);
  EXPECT_FALSE(value.Find(0, 0)->own.AreAll(Rational(1, 2)));
  value.Reduce(Axis::replicas, 3, Rational(1, 3), false);
  EXPECT_TRUE(value.Find(0, 0)->own.AreAll(Rational(1, 6)));
}

}  // namespace
}  // namespace tidemark::verify_gradients_test
